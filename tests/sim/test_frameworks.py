"""The names that Gaudi scripts import either work or raise an error that says that they are not modelled."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sim.runs import run


@pytest.mark.parametrize(
    ("statements", "shown"),
    [
        ("print(x.is_hpu, torch.ones(2).is_hpu)", "True False"),
        ("hpu.random.manual_seed(3); print(hpu.initial_seed())", "3"),
        ("free, whole = hpu.mem_get_info(); print(whole - free == hpu.memory_allocated() >= 16)", "True"),
        ("hpu.reset_peak_memory_stats(); print(hpu.memory_stats()['InUse'] == hpu.max_memory_allocated())", "True"),
        ("print(hpu.get_device_properties(0).name, hpu.is_bf16_supported())", "GAUDI2 True"),
        ("s = hpu.Stream()\nwith hpu.stream(s):\n    x.add_(1)\ns.synchronize(); print(s.query())", "True"),
        ("a, b = hpu.Event(enable_timing=True), hpu.Event(enable_timing=True)\na.record(); x.add_(1); b.record()\n"
         "b.synchronize(); print(a.elapsed_time(b) > 0, b.query())", "True True"),
        ("print(hpu.current_stream() is hpu.default_stream())", "True"),
        ("s = hpu.Stream()\nwith hpu.stream(s):\n    print(hpu.current_stream() is s)\n    x.record_stream(s)", "True"),
        ("with hpu.sdp_kernel(enable_recompute=False):\n    print(hpu.recompute_sdp_enabled())", "False"),
        ("from habana_frameworks.torch.hpu.metrics import metric_global\nx.add(1); htcore.mark_step()\n"
         "print(dict(metric_global('graph_compilation').stats())['TotalNumber'])", "1"),
        ("htcore.hpu_set_env(); print(htcore.hpu_initialize(x) is x)", "True"),
        ("htcore.add_step_closure(print, ('closed',)); htcore.iter_mark_step()", "closed"),
        ("from habana_frameworks.torch.utils.internal import is_lazy; print(is_lazy())", "True"),
        ("from habana_frameworks.torch.distributed.hccl import initialize_distributed_hpu\n"
         "print(initialize_distributed_hpu())", "(1, 0, 0)"),
        ("import habana_frameworks.torch.distributed.hccl\nimport torch.distributed as dist\n"
         "dist.init_process_group('hccl'); dist.all_reduce(x); print(x.tolist(), dist.get_world_size())\n"
         "dist.destroy_process_group()", "[0.0, 1.0, 2.0, 3.0] 1"),
        ("with torch.device('hpu'):\n    print(torch.ones(2).device, torch.nn.Linear(2, 2).weight.device)",
         "hpu:0 hpu:0"),
        ("torch.set_default_device('hpu'); print(torch.zeros(2).device, torch.tensor([1.0]).device)", "hpu:0 hpu:0"),
    ],
)  # fmt: skip
def test_names_that_are_modelled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], statements: str, shown: str
) -> None:
    text = "import habana_frameworks.torch.hpu as hpu\nx = torch.arange(4.0).to('hpu')\n"

    done = run(tmp_path, text + statements)

    assert (done.done.exit_code, capsys.readouterr()) == (0, (shown + "\n", ""))
    assert torch.utils._device.CURRENT_DEVICE is None


FUSED = {
    "RMS norm": (
        "from habana_frameworks.torch.hpex.normalization import FusedRMSNorm\nfused = FusedRMSNorm.apply(x, w, 1e-6)",
        "torch.nn.functional.rms_norm(x, (8,), w, 1e-6)",
        "rms_norm",
    ),
    "rotary embedding": (
        "from habana_frameworks.torch.hpex.kernels import RotaryPosEmbeddingHelperV2 as R\n"
        "c, s = torch.rand(9, 8, device='hpu'), torch.rand(9, 8, device='hpu')\n"
        "p = torch.tensor([[2, 3, 4]], device='hpu')\nfused = R.apply(x * w, c, s, p)",
        "(x * w) * c[2:5] + torch.cat((-(x * w)[..., 4:], (x * w)[..., :4]), -1) * s[2:5]",
        "rotary_pos_embedding",
    ),
}


@pytest.mark.parametrize("op", FUSED)
def test_fused_ops_are_one_kernel_with_the_values_of_the_plain_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], op: str
) -> None:
    fused, plain, kernel = FUSED[op]
    text = f"""
torch.manual_seed(0)
x, w = torch.randn(1, 2, 3, 8).to("hpu").requires_grad_(), torch.rand(8).to("hpu").requires_grad_()
{fused}
plain = {plain}
pairs = zip(*(torch.autograd.grad(each.square().sum(), (x, w)) for each in (fused, plain)))
print(torch.allclose(fused, plain, atol=1e-5), *(torch.allclose(a, b, atol=1e-4) for a, b in pairs))
"""
    done = run(tmp_path, text)

    assert capsys.readouterr().out == "True True True\n"
    names = [event["name"] for event in done.kernels()]
    assert (names.count(kernel), names.count(f"{kernel}_bwd")) == (1, 1)


def test_experts_are_one_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """
        torch.manual_seed(0)
        tokens, experts = torch.randn(5, 8).to("hpu"), torch.randint(0, 4, (5, 2)).to("hpu")
        weights = torch.rand(5, 2).to("hpu")
        w1, w2 = ([torch.randn(6, 8).to("hpu") for _ in range(4)] for _ in range(2))
        w3 = [torch.randn(8, 6).to("hpu") for _ in range(4)]
        out = torch.ops.hpu.mixture_of_experts(tokens, experts, weights, w1, w2, w3, True, "silu", 0, 3)
        print(out.device, tuple(out.shape))
    """
    done = run(tmp_path, text)

    assert capsys.readouterr().out == "hpu:0 (5, 8)\n"
    assert [event["name"] for event in done.kernels()].count("moe") == 1


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("import habana_frameworks.torch.low_overhead_profiler", "habana_frameworks.torch.low_overhead_profiler"),
        ("from habana_frameworks.torch.hpex.kernels import PySDPA", "habana_frameworks.torch.hpex.kernels.PySDPA"),
        ("torch.hpu.utilization()", "habana_frameworks.torch.hpu.utilization"),
        ("torch.ops.hpu.cast_to_fp8(torch.ones(2))", "torch.ops.hpu.cast_to_fp8"),
    ],
)
def test_names_that_are_not_modelled_raise_an_error_that_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], statement: str, error: str
) -> None:
    assert run(tmp_path, statement).done.exit_code == 1
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .endswith(f"Error: {error} is not modelled by the simulator (docs/simulator.md says what is)")
    )


def test_a_script_that_probes_for_a_name_continues(tmp_path: Path) -> None:
    text = "assert not hasattr(torch.hpu, 'utilization')\nfrom importlib.util import find_spec\n"

    assert run(tmp_path, text + "assert find_spec('habana_frameworks.torch')").done.exit_code == 0


def test_every_name_of_the_bridge_is_modelled_or_raises_an_error_that_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks the public names of release 1.19, module by module."""
    text = """
        import importlib, json, pathlib, sys
        names = json.loads(pathlib.Path(sys.argv[1]).read_text())
        del names["source"]
        there, refused, other = [], [], []
        for module, members in names.items():
            for name in members:
                try:
                    getattr(importlib.import_module(module), name)
                    there.append(f"{module}.{name}")
                except (ImportError, AttributeError) as error:
                    (refused if "is not modelled by the simulator" in str(error) else other).append(str(error))
        print(len(there), len(refused), other)
    """
    done = run(tmp_path, text, str(Path(__file__).parent / "bridge_names.json"))

    assert done.done.exit_code == 0
    there, refused, other = capsys.readouterr().out.split(" ", 2)
    assert other.strip() == "[]"
    assert (int(there) > 105, int(there) + int(refused)) == (True, 285)
