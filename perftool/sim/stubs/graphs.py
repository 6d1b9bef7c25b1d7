"""Simulates HPU graphs, which are captured once and replayed with one host call each, and ``torch.compile``."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any

import torch
from torch import nn

from perftool import fused
from perftool.sim.ops.op_work import leaves
from perftool.sim.session.fused_region import compiled, replayed
from perftool.sim.session.simulation import Simulation


class GraphedFunction:
    """A function that is captured once for each combination of shapes and plain arguments, then replayed."""

    def __init__(self, simulation: Simulation, function: Callable[..., Any], max_graphs: int | None = None) -> None:
        self._simulation = simulation
        self._function = function
        self._max_graphs = max_graphs
        self._captured: set[Hashable] = set()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function as a graph."""
        bypass = kwargs.pop("bypass_hpu_graphs", False)
        key = tuple(_call_key(leaf) for leaf in leaves((args, kwargs)))
        if key in self._captured and not bypass:
            with replayed(self._simulation):
                result = self._function(*args, **kwargs)
            self._simulation.graphed_backward = torch.is_grad_enabled()
            return result
        room = self._max_graphs is None or len(self._captured) < self._max_graphs
        if bypass or not room:
            return self._function(*args, **kwargs)
        self._simulation.machine.cut("new HPUGraph::capture_begin")
        result = self._function(*args, **kwargs)
        self._simulation.machine.cut("HPUGraph::capture_end")
        self._captured.add(key)
        return result

    def clear(self) -> None:
        """Forget the captured graphs."""
        self._captured.clear()


def _call_key(leaf: Any) -> Hashable:
    if isinstance(leaf, torch.Tensor):
        return tuple(leaf.shape), leaf.dtype, torch.is_grad_enabled()
    return leaf if isinstance(leaf, Hashable) else id(leaf)


def graph_members(simulation: Simulation) -> dict[str, Any]:
    """Return the graph functions of ``habana_frameworks.torch.hpu``."""

    def wrap_in_hpu_graph(module: Any, *args: Any, max_graphs: int | None = None, **options: Any) -> Any:
        """Replace the forward of ``module`` with a function that captures and replays graphs."""
        graphed = GraphedFunction(simulation, module.forward, max_graphs)
        module.forward = graphed
        module.clear_cache = graphed.clear
        module.clear_inputs = lambda: None
        return module

    def make_graphed_callables(callables: Any, sample_args: Any, *args: Any, **options: Any) -> Any:
        """Make a callable, or each callable in a tuple, capture and replay graphs."""
        if isinstance(callables, tuple):
            return tuple(make_graphed_callables(each, ()) for each in callables)
        if isinstance(callables, nn.Module):
            return wrap_in_hpu_graph(callables)
        return GraphedFunction(simulation, callables)

    class ModuleCacher:
        """Caches the graphs of a module by its inputs."""

        def __init__(self, max_graphs: int = 10) -> None:
            self._max_graphs = max_graphs

        def __call__(self, model: Any, *args: Any, **options: Any) -> Any:
            return wrap_in_hpu_graph(model, max_graphs=self._max_graphs)

    return {
        "wrap_in_hpu_graph": wrap_in_hpu_graph,
        "wrap_in_hpu_graph_func": lambda function, *args, **options: GraphedFunction(simulation, function),
        "make_graphed_callables": make_graphed_callables,
        "ModuleCacher": ModuleCacher,
        "HPUGraph": _hpu_graph(simulation),
        "graph": fused.graph,
    }


def _hpu_graph(simulation: Simulation) -> type:
    base = fused.HPUGraph

    class HPUGraph(base):  # type: ignore[misc, valid-type]
        """Captures a region once, and replays it on the same memory."""

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return object.__new__(cls)

        def __init__(self) -> None:
            with simulation.plain_tensors():
                super().__init__("cpu")
            self._replaying = False

        def capture_begin(self, dry_run: bool = False) -> None:
            """Start recording ops while they run."""
            simulation.machine.cut("new HPUGraph::capture_begin")
            super().capture_begin(dry_run)

        def capture_end(self) -> None:
            """Stop recording ops."""
            super().capture_end()
            simulation.machine.cut("HPUGraph::capture_end")

        def replay(self, asynchronous: bool = False) -> None:
            """Run the recorded ops again with one host call."""
            self._replay("HPUGraph::replay", lambda: super(HPUGraph, self).replay(asynchronous))

        def replayV2(self, static_tlist: Any, tlist: Any, asynchronous: bool = False) -> None:  # noqa: N802 - Gaudi's
            """Replay after copying ``tlist`` into ``static_tlist``."""
            self._replay("HPUGraph::replayV2", lambda: super(HPUGraph, self).replayV2(static_tlist, tlist))

        def replayV3(self, tlistI: Any, asynchronous: bool = False) -> None:  # noqa: N802, N803 - Gaudi's
            """Replay with new inputs in place of the marked inputs."""
            self._replay("HPUGraph::replayV3", lambda: super(HPUGraph, self).replayV2(self._inputs, tlistI))

        def _replay(self, call: str, run: Callable[[], None]) -> None:
            if self._replaying:
                run()
                return
            self._replaying = True
            try:
                with simulation.plain_tensors(), replayed(simulation, call):
                    run()
            finally:
                self._replaying = False

    return HPUGraph


class _CompiledModule(nn.Module):
    """A compiled module: its forward is one graph."""

    def __init__(self, simulation: Simulation, module: nn.Module) -> None:
        super().__init__()
        self._orig_mod = module
        self._simulation = simulation

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the forward as one compiled region."""
        self._simulation.graphed_backward = torch.is_grad_enabled()
        with compiled(self._simulation):
            return self._orig_mod(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_orig_mod"), name)


def compile_function(simulation: Simulation) -> Callable[..., Any]:
    """Return a ``torch.compile`` that runs a function as one graph in compile mode; it has no effect in other modes."""

    def compile_(model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda function: compile_(function, **options)
        if simulation.mode != "compile":
            return model
        if isinstance(model, nn.Module):
            return _CompiledModule(simulation, model)

        @wraps(model)
        def region(*args: Any, **kwargs: Any) -> Any:
            simulation.graphed_backward = torch.is_grad_enabled()
            with compiled(simulation):
                return model(*args, **kwargs)

        return region

    return compile_


def backward_function(simulation: Simulation) -> Callable[..., Any]:
    """Return a ``torch.autograd.backward`` that runs as one graph if the forward was a captured or compiled graph."""
    plain = torch.autograd.backward

    def backward(*args: Any, **kwargs: Any) -> None:
        graphed, simulation.graphed_backward = simulation.graphed_backward, False
        if not graphed:
            plain(*args, **kwargs)
            return
        with (compiled if simulation.mode == "compile" else replayed)(simulation):
            plain(*args, **kwargs)

    return backward


def engine_function(simulation: Simulation) -> Callable[..., Any]:
    """Return a function that runs backward inside the function mode: PyTorch leaves this mode, but script code needs
    it."""
    plain = torch.autograd._engine_run_backward  # type: ignore[attr-defined]

    def run(*args: Any, **kwargs: Any) -> Any:
        with simulation.functions.entered():
            return plain(*args, **kwargs)

    return run


def hooks_function(simulation: Simulation) -> Callable[..., Any]:
    """Wrap the function that installs hooks for saved tensors, so that the hooks run inside the function mode."""
    plain = torch._C._autograd._push_saved_tensors_default_hooks

    def entered(hook: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            with simulation.functions.entered():
                return hook(*args)

        return call

    return lambda pack, unpack: plain(entered(pack), entered(unpack))
