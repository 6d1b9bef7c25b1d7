"""On a Gaudi, the native ops receive the call unchanged. Recorders replace Gaudi's package, so no Gaudi is needed."""

from __future__ import annotations

import contextlib
import sys
import types

import pytest
import torch
import torch.distributed as dist

from perftool.fused import (
    FusedSDPA,
    HPUGraph,
    ModuleCacher,
    all_reduce_gradients,
    graph,
    make_graphed_callables,
    mixture_of_experts,
    wrap_in_hpu_graph,
)


class Recorder:
    """Records each call by name and returns a marker."""

    def __init__(self):
        self.calls = []

    def named(self, name, result="native result"):
        def call(*args, **kwargs):
            self.calls.append((name, args, kwargs))
            return result

        return call


class NativeGraph:
    """Replays captured calls with their arguments and counts the replays."""

    log: list[str]

    def __getattr__(self, name):
        def note(*args, **kwargs):
            self.log.append(name)

        return note


@pytest.fixture
def recorder(monkeypatch):
    """A habana_frameworks package made of recorders, and a dispatch that finds every op native."""
    recorder = Recorder()

    @contextlib.contextmanager
    def native_graph(*args, **kwargs):
        recorder.calls.append(("graph", args, kwargs))
        yield

    NativeGraph.log = []
    hpu = types.ModuleType("habana_frameworks.torch.hpu")
    hpu.HPUGraph, hpu.graph = NativeGraph, native_graph
    hpu.is_available = lambda: True
    hpu.Stream, hpu.stream = object, lambda stream: contextlib.nullcontext()
    hpu.make_graphed_callables = recorder.named("make_graphed_callables")
    hpu.wrap_in_hpu_graph = recorder.named("wrap_in_hpu_graph")
    hpu.ModuleCacher = lambda max_graphs: recorder.named(f"ModuleCacher({max_graphs})")
    kernels = types.ModuleType("habana_frameworks.torch.hpex.kernels")
    kernels.FusedSDPA = types.SimpleNamespace(apply=recorder.named("FusedSDPA"))
    for name in ("habana_frameworks", "habana_frameworks.torch", "habana_frameworks.torch.hpex"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    for module in (hpu, kernels):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for name in (
        "attention",
        "experts",
        "all_reduce",
        "graphs.capture",
        "graphs.modules",
    ):
        monkeypatch.setattr(f"perftool.fused.{name}.choose", lambda op, *_: "habana")
    return recorder


def test_attention_passes_all_thirteen_arguments(recorder):
    q, k, v = (torch.zeros(1, 1, 2, 2) for _ in range(3))
    assert FusedSDPA.apply(q, k, v, None, 0.1, True) == "native result"
    ((_, arguments, _),) = recorder.calls
    assert all(passed is given for passed, given in zip(arguments[:3], (q, k, v), strict=True))
    assert arguments[3:] == (None, 0.1, True, None, "None", True, None, "left", False, False)


def test_experts_pass_the_call_to_the_registered_operator(recorder, monkeypatch):
    monkeypatch.setattr(torch.ops, "hpu", types.SimpleNamespace(mixture_of_experts=recorder.named("moe")), False)
    x, weight = torch.zeros(1, 2), [torch.zeros(2, 2)]
    arguments = (x, x, x, weight, weight, True, "silu", 0, 0)
    assert mixture_of_experts(*arguments) == "native result"
    assert recorder.calls == [("moe", arguments, {})]


def test_constructing_and_capturing_use_the_native_graph(recorder):
    captured = HPUGraph()
    assert isinstance(captured, NativeGraph)
    with graph(captured, stream="s", dry_run=True):
        pass
    assert recorder.calls == [("graph", (captured,), {"stream": "s", "dry_run": True})]


def test_wrappers_hand_over_their_options(recorder):
    model, x = torch.nn.Linear(2, 2), torch.zeros(1, 2)
    make_graphed_callables(model, (x,), warmups=2, dry_run=True)
    wrap_in_hpu_graph(model, True, max_graphs=3)
    ModuleCacher(7)(model, use_lfu=True, verbose=True)
    assert recorder.calls == [
        ("make_graphed_callables", (model, (x,), 2, False, False, False, True), {}),
        ("wrap_in_hpu_graph", (model, True, False, False, 3), {}),
        ("ModuleCacher(7)", (model, True, True, False, False, False, 100, True, False, False), {}),
    ]


@pytest.fixture
def single_rank(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("single_rank")
@pytest.mark.parametrize("recorded", [True, False])
def test_gradient_copies_are_recorded_in_two_native_graphs(recorder, recorded):
    model = torch.nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    all_reduce_gradients(model, torch.float32, use_hpu_graphs=recorded)
    all_reduce_gradients(model, torch.float32, use_hpu_graphs=recorded)
    assert [name for name, *_ in recorder.calls] == ["graph"] * 2 * recorded
    assert NativeGraph.log == ["replay"] * 4 * recorded
    assert model.weight.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]
