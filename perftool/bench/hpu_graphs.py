"""A model of many small ops: run op by op, or captured once and replayed."""

from __future__ import annotations

import copy

import torch
from torch import nn

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.deep import deep_network
from perftool.fused import wrap_in_hpu_graph

# Width and rows: overhead only, and mostly arithmetic.
_SHAPES = {"small": (16, 4), "large": (512, 128)}
_BLOCKS = 10


def build(form: FormName, setting: Setting) -> Form:
    """Inference by the plain model, or by wrap_in_hpu_graph; capturing (on the CPU: compiling) is not in the timing."""
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
        title = f"wrap_in_hpu_graph{_preparation(called)}"

    @torch.no_grad()
    def run() -> None:
        latest[:] = [called(inputs)]

    return Form(title, run, lambda: latest)


def _preparation(wrapped: nn.Module) -> str:
    """What capturing took before the first replay, where it compiles."""
    graphs = getattr(wrapped.forward, "graphs", {})
    seconds = sum(call.forward_graph.compile_seconds for call in graphs.values())
    return f" (compiled in {seconds:.1f} s)" if seconds else ""


BENCHMARK = Benchmark(
    name="hpu_graphs",
    rules=("GAP103", "GAP104"),
    summary="a captured graph that is replayed instead of one launch for each op",
    build=build,
    sizes=tuple(_SHAPES),
    traced_size="small",
    script="hpu_graphs.py",
    tolerance=1e-5,
    not_quick="compiles for half a minute and more",
)
