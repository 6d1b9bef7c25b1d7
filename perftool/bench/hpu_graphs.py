"""A model of many small ops: executed op by op, or captured once and replayed."""

from __future__ import annotations

import copy

import torch

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.deep import deep_network
from perftool.fused import wrap_in_hpu_graph

# Width and rows: overhead dominates the small model, and arithmetic dominates the large one.
_SHAPES = {"small": (16, 4), "large": (512, 128)}
_BLOCKS = 10


def build(form: FormName, setting: Setting) -> Form:
    """Inference by the plain model, or by wrap_in_hpu_graph; the time does not include capturing."""
    width, rows = _SHAPES[setting.size]
    model = deep_network(width, _BLOCKS, setting)
    inputs = torch.randn(rows, width, generator=setting.generator()).to(setting.device)
    latest: list[torch.Tensor] = []
    if form == "naive":
        called, title = model, "op by op"
    else:
        called = wrap_in_hpu_graph(copy.deepcopy(model))
        with torch.no_grad():
            called(inputs)
        title = "wrap_in_hpu_graph"

    @torch.no_grad()
    def run() -> None:
        latest[:] = [called(inputs)]

    return Form(title, run, lambda: latest)


BENCHMARK = Benchmark(
    name="hpu_graphs",
    rules=("GAP103", "GAP104"),
    summary="A captured graph that is replayed instead of one launch for each op",
    build=build,
    sizes=tuple(_SHAPES),
    traced_size="small",
    script="hpu_graphs.py",
    tolerance=1e-5,
    devices=("cuda", "hpu"),
    reason="on a CPU, a replay still runs every op; only an accelerator saves the launches",
)
