"""Parts of Lightning's Gaudi guide besides DeepSpeed: its profiler, captured graphs in a module, and two compilers."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from sim.runs import run

START = """
    import logging, random, warnings
    warnings.filterwarnings("ignore")
    import torch.nn.functional as F
    from torch import nn
    from pytorch_lightning import LightningModule, Trainer
    from lightning_habana.pytorch.accelerator import HPUAccelerator
    from lightning_habana.pytorch.profiler.profiler import HPUProfiler
    from lightning_habana.pytorch.strategies import SingleHPUStrategy
    from torch.utils.data import DataLoader, TensorDataset
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.randn(12, 6), torch.randint(0, 3, (12,))), batch_size=4)
    quiet = {name: False for name in ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")}

    def trainer(**options):
        chosen = {"strategy": SingleHPUStrategy(), **options}
        return Trainer(accelerator=HPUAccelerator(), max_epochs=1, **quiet, **chosen)

    class Base(LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
        def forward(self, x):
            return self.net(x)
        def training_step(self, batch, number):
            loss = F.cross_entropy(self(batch[0]), batch[1])
            losses.append(loss.item())
            return loss
        def test_step(self, batch, number):
            losses.append(F.cross_entropy(self(batch[0]), batch[1]).item())
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    losses = []
    trainer().fit(Base(), loader)
    plain = list(losses)
    losses.clear()
"""
SNIPPETS = {
    "a profiler": "trainer(profiler=HPUProfiler(dirpath=folder)).fit(Base(), loader); print(losses == plain)",
    "a profiler with a file for each rank": (
        "import pathlib\n"
        "trainer(profiler=HPUProfiler(dirpath=folder, filename='ranks')).fit(Base(), loader)\n"
        "print(any('ranks' in each.name for each in pathlib.Path(folder).iterdir()))"
    ),
    "a profiler of own actions": """
profiler = HPUProfiler(dirpath=folder)
class Own(Base):
    def training_step(self, batch, number):
        with profiler.profile("mine"):
            x = batch[0] * 1
        profiler.start("other"); profiler.stop("other")
        return super().training_step((x, batch[1]), number)
trainer(profiler=profiler).fit(Own(), loader)
print(losses == plain)
""",
    "a captured training step": """
class Captured(Base):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.graph = htcore.hpu.HPUGraph()
        self.x, self.y = torch.zeros(4, 6, device="hpu"), torch.zeros(4, dtype=torch.long, device="hpu")
    def training_step(self, batch, number):
        optimizer = self.optimizers()
        if number == 0:
            optimizer.zero_grad(set_to_none=True)
            with htcore.hpu.graph(self.graph):
                self.loss = F.cross_entropy(self(self.x), self.y)
        self.x.copy_(batch[0])
        self.y.copy_(batch[1])
        self.graph.replay()
        losses.append(self.loss.item())
model = Captured()
trainer().fit(model, loader)
print(losses[0] == plain[0], len(losses))
""",
    "graphed callables": """
model = Base().to("hpu")
model.net = htcore.hpu.make_graphed_callables(model.net, (torch.randn(4, 6, device="hpu"),))
trainer().fit(model, loader)
print(losses == plain)
""",
    "a cache of graphs": """
model = Base()
htcore.hpu.ModuleCacher(max_graphs=3)(model=model.net, inplace=True)
trainer().fit(model, loader)
print(losses == plain)
""",
    "a captured test step": """
class Tested(Base):
    def test_step(self, batch, number):
        if number == 0:
            self.graph, self.x = htcore.hpu.HPUGraph(), torch.zeros(4, 6, device="hpu")
            with htcore.hpu.graph(self.graph):
                self.out = self.forward(self.x)
        self.x.copy_(batch[0])
        self.graph.replay()
        losses.append(F.cross_entropy(self.out, batch[1]).item())
for model in (Base(), Tested()):
    trainer().test(model, loader, verbose=False)
print(losses[:3] == losses[3:], len(losses))
""",
    "a wrapped forward": """
for wrapped in (False, True):
    model = Base().to("hpu")
    if wrapped:
        model = htcore.hpu.wrap_in_hpu_graph(model, asynchronous=False, disable_tensor_cache=True)
    trainer().test(model, loader, verbose=False)
print(losses[:3] == losses[3:], len(losses))
""",
    "graphs on both sides of a branch": """
class Branching(Base):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Identity(), nn.ReLU()
        for each in (self.net, self.one, self.two):
            htcore.hpu.ModuleCacher(max_graphs=3)(model=each, inplace=True)
    def forward(self, x):
        x = self.net(x)
        return self.one(x) if random.random() > 0.5 else self.two(x)
random.seed(0)
trainer().fit(Branching(), loader)
print(len(losses))
""",
    "graphs around an op of data-dependent shape": """
class Selecting(Base):
    def training_step(self, batch, number):
        x = self.net(batch[0])
        htcore.mark_step()
        x = x[torch.where(x < 0)]
        htcore.mark_step()
        loss = self.last(x).square().mean()
        losses.append(loss.item())
        return loss
model = Selecting()
model.last = nn.Identity()
for each in (model.net, model.last):
    htcore.hpu.ModuleCacher(max_graphs=3)(model=each, inplace=True)
trainer().fit(model, loader)
print(len(losses))
""",
    "two backends of torch.compile": """
model = Base()
model.net = torch.compile(model.net, backend="aot_hpu_training_backend")
trainer().fit(model, loader)
infer = torch.compile(Base().to("hpu").eval(), backend="aot_hpu_inference_backend")
print(losses == plain, infer(torch.ones(2, 6, device="hpu")).shape[1])
""",
}
SHOWN = {
    "a captured training step": "True 3",
    "a captured test step": "True 6",
    "a wrapped forward": "True 6",
    "graphs on both sides of a branch": "3",
    "graphs around an op of data-dependent shape": "3",
    "two backends of torch.compile": "True 3",
}


@pytest.mark.parametrize("name", SNIPPETS)
def test_snippets_of_lightnings_guide(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    pytest.importorskip("pytorch_lightning")
    mode = "compile" if "compile" in name else "lazy"
    done = run(tmp_path, dedent(START) + f"folder = {str(tmp_path / 'profiles')!r}\n" + SNIPPETS[name], mode=mode)

    assert (done.done.exit_code, capsys.readouterr().out.splitlines()[-1]) == (0, SHOWN.get(name, "True"))
