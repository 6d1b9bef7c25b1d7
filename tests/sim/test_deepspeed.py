"""DeepSpeed as in Lightning's guide for Gaudi: ZeRO, precision, offloading, checkpointing, inference and JSON.

If DeepSpeed is installed (pip install deepspeed), one run covers all of it. The other tests need only Lightning.
"""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from sim.runs import Run, run

MARK = "RESULT "
START = """
    import json, logging, sys, warnings
    warnings.filterwarnings("ignore")
    from pytorch_lightning import LightningModule, Trainer
    from lightning_habana.pytorch.accelerator import HPUAccelerator
    from lightning_habana.pytorch.strategies import HPUDeepSpeedStrategy
    from torch.utils.data import DataLoader, TensorDataset
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
"""
ALL = (
    START
    + """
    from pytorch_lightning.plugins import DeepSpeedPrecisionPlugin
    from deepspeed.runtime.activation_checkpointing.checkpointing import checkpoint
    cut = torch.nn.functional.cross_entropy

    class Plain(LightningModule):
        scheduled = checkpointed = False
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.first, self.second = torch.nn.Linear(6, 5), torch.nn.Linear(5, 3)
        def forward(self, x):
            hidden = self.first(x).relu()
            return checkpoint(self.second, hidden) if self.checkpointed else self.second(hidden)
        def training_step(self, batch, number):
            loss = cut(self(batch[0]).float(), batch[1])
            losses.append(loss.item())
            return loss
        def predict_step(self, batch, number):
            return self(batch[0])
        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.2)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)] if self.scheduled else []
    class Scheduled(Plain):
        scheduled = True
    class Checkpointed(Plain):
        checkpointed = True

    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.randn(16, 6), torch.randint(0, 3, (16,))), batch_size=4)
    quiet = {name: False for name in ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")}
    losses = []

    def trainer(strategy, precision="bf16-mixed", **options):
        plugins = [DeepSpeedPrecisionPlugin(precision=precision)]
        return Trainer(accelerator=HPUAccelerator(), strategy=strategy, plugins=plugins, max_epochs=1,
                       use_distributed_sampler=False, **quiet, **options)

    def fitted(name, strategy, model=Plain, **options):
        losses.clear()
        trainer(strategy, **options).fit(model(), loader)
        print("RESULT", json.dumps([name, losses]))

    def expected():
        net, losses = Plain(), []
        [optimizer], _ = net.configure_optimizers()
        for x, y in loader:
            loss = cut(net(x), y)
            losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("RESULT", json.dumps(["expected", losses]))

    expected()
    fitted("a scheduler of the module", HPUDeepSpeedStrategy(), Scheduled)
    for stage in (1, 2, 3):
        fitted(f"ZeRO-{stage}", HPUDeepSpeedStrategy(zero_optimization=True, stage=stage), devices=8)
        fitted(f"ZeRO-{stage}, fp32", HPUDeepSpeedStrategy(zero_optimization=True, stage=stage), precision="32-true")
    fitted("without ZeRO", HPUDeepSpeedStrategy(zero_optimization=False), precision="32-true")
    config = {
        "train_batch_size": 8, "train_micro_batch_size_per_gpu": 4, "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": True}, "fp16": {"enabled": False}, "zero_optimization": {"stage": 1},
        "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 0.1, "warmup_max_lr": 0.3,
                      "warmup_num_steps": 2, "total_num_steps": 6, "warmup_type": "linear"}},
    }
    with open(sys.argv[1], "w") as file:
        json.dump(config, file)
    cards = [torch.device("hpu")] * HPUAccelerator.auto_device_count()
    short = {"accumulate_grad_batches": 2, "limit_train_batches": 4}
    fitted("a configuration", HPUDeepSpeedStrategy(config=config, parallel_devices=cards), **short)
    fitted("a configuration in a file", HPUDeepSpeedStrategy(config=sys.argv[1]), **short)
    fitted("checkpointing", HPUDeepSpeedStrategy(stage=2, cpu_checkpointing=True), Checkpointed, precision="32-true")
    offloaded = HPUDeepSpeedStrategy(stage=2, offload_optimizer=True)
    offloaded.config["zero_force_ds_cpu_optimizer"] = False
    fitted("offloading", offloaded, precision="32-true")
    trainer(HPUDeepSpeedStrategy(stage=3, offload_optimizer=True, offload_parameters=True, cpu_checkpointing=True))

    def predicted(name, *args, **options):
        found = trainer(HPUDeepSpeedStrategy(*args, **options), devices=8).predict(Plain(), loader)
        wanted = Plain()(loader.dataset.tensors[0].bfloat16().float())
        print("RESULT", json.dumps([name, (torch.cat(found) - wanted).abs().max().item()]))

    split = {"tensor_parallel": {"tp_size": 4}, "dtype": torch.float, "enable_cuda_graph": False}
    predicted("by arguments", parallel_devices=4, replace_with_kernel_inject=True, **split)
    named = {**split, "replace_method": "auto", "injection_policy": {Plain: ("second",)}}
    predicted("by keywords", parallel_devices=[torch.device("hpu")] * 4, replace_with_kernel_inject=False, **named)
    predicted("by a configuration", config={**split, "replace_with_kernel_inject": True})
"""
)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, Any]]:
    """The run, and the values that it printed, by name."""
    pytest.importorskip("deepspeed")
    pytest.importorskip("pytorch_lightning")
    folder = tmp_path_factory.mktemp("deepspeed")
    printed = folder / "printed.txt"
    with printed.open("w") as file, redirect_stdout(file):
        whole = run(folder, ALL, str(folder / "deepspeed.json"))
    lines = [line.removeprefix(MARK) for line in printed.read_text().splitlines() if line.startswith(MARK)]
    return whole, dict(json.loads(line) for line in lines)


def test_deepspeed_runs_on_the_device(done: tuple[Run, dict[str, Any]]) -> None:
    whole, found = done

    assert whole.done.exit_code == 0
    assert len(found) == 16
    assert any(event["args"].get("recipeName") for event in whole.kernels("MME"))


@pytest.mark.parametrize(
    "name",
    ["ZeRO-1, fp32", "ZeRO-2, fp32", "ZeRO-3, fp32", "without ZeRO", "checkpointing", "offloading"],
)
def test_in_fp32_the_losses_are_those_of_a_plain_loop(done: tuple[Run, dict[str, Any]], name: str) -> None:
    assert done[1][name] == pytest.approx(done[1]["expected"], rel=1e-5)


@pytest.mark.parametrize("name", ["a scheduler of the module", "ZeRO-1", "ZeRO-2", "ZeRO-3"])
def test_in_bf16_the_losses_are_close(done: tuple[Run, dict[str, Any]], name: str) -> None:
    assert done[1][name] == pytest.approx(done[1]["expected"], rel=1e-2)
    assert done[1][name] != done[1]["expected"]


def test_a_configuration_file_works_too(done: tuple[Run, dict[str, Any]]) -> None:
    found = done[1]

    assert found["a configuration"] == found["a configuration in a file"]
    # The losses differ from the expected ones, because the two batches of a step see the same bf16 weights.
    assert found["a configuration"][:2] != pytest.approx(found["expected"][:2], rel=1e-5)


@pytest.mark.parametrize("name", ["by arguments", "by keywords", "by a configuration"])
def test_inference_computes_what_the_model_does(done: tuple[Run, dict[str, Any]], name: str) -> None:
    assert done[1][name] == pytest.approx(0, abs=1e-6)


def test_limits_of_the_guide_and_omissions_are_reported(done: tuple[Run, dict[str, Any]]) -> None:
    assert [note for note in done[0].done.notes if note.startswith("DeepSpeed")] == [
        "DeepSpeed: Gaudi's documentation does not list ZeRO stage 3 as supported on Gaudi 2",
        "DeepSpeed: the script asks for 4 cards, but the run simulates 1, so the others have no shards",
    ]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("accelerator=HPUAccelerator(), strategy='hpu_deepspeed'", "invalid strategy name: `strategy='hpu_deepspeed'`"),
        ("accelerator='hpu'", "`accelerator='hpu'`"),
    ],
)
def test_strings_that_lightning_does_not_know_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wanted: str, message: str
) -> None:
    pytest.importorskip("pytorch_lightning")

    assert run(tmp_path, f"{START}    Trainer({wanted})").done.exit_code == 1
    assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.skipif(bool(find_spec("deepspeed")), reason="DeepSpeed is installed")
def test_without_deepspeed_lightning_names_the_missing_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pytorch_lightning")

    assert run(tmp_path, f"{START}    HPUDeepSpeedStrategy(stage=1)").done.exit_code == 1
    assert "you must have DeepSpeed installed" in capsys.readouterr().err.splitlines()[-1]
