"""`wrap_in_hpu_graph`: inference with one captured graph for each kind of input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from perftool.fused.dispatch import choose, native
from perftool.fused.graphs.capture import OP
from perftool.fused.graphs.captured import CapturedCall
from perftool.fused.graphs.inputs import GraphKey, flatten_call


class GraphCache:
    """Calls a function through at most `max_graphs` graphs; further kinds of input run the function itself."""

    def __init__(self, function: Callable[..., Any], max_graphs: int | None) -> None:
        self._function = function
        self._max_graphs = max_graphs
        self.graphs: dict[GraphKey, CapturedCall] = {}

    def __len__(self) -> int:
        return len(self.graphs)

    def __call__(
        self,
        *args: Any,
        warmup_mode: bool = False,
        bypass_hpu_graphs: bool = False,
        cache_tensors_list: Any = None,
        **kwargs: Any,
    ) -> Any:
        """The function's result. The first call of a kind captures and returns the capture's own outputs;
        later ones replay and return the same tensors with new values, so clone results that must last.

        `bypass_hpu_graphs` runs the function itself; `warmup_mode` skips the replay, so that known inputs
        give old values. `cache_tensors_list` is accepted for scripts written for a Gaudi.
        """
        if bypass_hpu_graphs:
            return self._function(*args, **kwargs)
        inputs = flatten_call(args, kwargs)
        key = inputs.key()
        call = self.graphs.get(key)
        if call is not None:
            return call.captured_outputs if warmup_mode else call(inputs.tensors)
        if self._max_graphs is not None and len(self.graphs) >= self._max_graphs:
            return self._function(*args, **kwargs)
        call = self.graphs[key] = CapturedCall(self._function, inputs, differentiable=False)
        return call.captured_outputs

    def clear_cache(self) -> None:
        """Forget every graph and its memory."""
        self.graphs.clear()

    def clear_inputs(self) -> None:
        """Forget the marked inputs of every graph; the memory into which calls are copied has to stay."""
        for call in self.graphs.values():
            call.forward_graph.clear_inputs()


def wrap_in_hpu_graph(
    module: torch.nn.Module,
    asynchronous: bool = False,
    disable_tensor_cache: bool = False,
    dry_run: bool = False,
    max_graphs: int | None = None,
) -> torch.nn.Module:
    """Make `module.forward` capture and replay, and return the module; for inference only, because no gradients flow.

    A new graph is captured for each combination of argument structure, tensor layouts and dtypes, autocast
    state and other values; see `GraphCache` for the keywords of a call and the lifetime of results.
    The module gains `clear_cache()` and `clear_inputs()`. `asynchronous`, `disable_tensor_cache` and
    `dry_run` matter on a Gaudi only. TypeError for anything but a module.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"wrap_in_hpu_graph takes a torch.nn.Module, not {type(module).__name__}")
    if choose(OP, device_of(module)).name == "habana":
        wrapped: torch.nn.Module = native("hpu", "wrap_in_hpu_graph")(
            module, asynchronous, disable_tensor_cache, dry_run, max_graphs
        )
        return wrapped
    cache = GraphCache(module.forward, max_graphs)
    module.forward = cache
    module.clear_cache = cache.clear_cache  # type: ignore[assignment]
    module.clear_inputs = cache.clear_inputs  # type: ignore[assignment]
    return module


def wrap_in_hpu_graph_func(
    function: Callable[..., Any],
    asynchronous: bool = False,
    disable_tensor_cache: bool = False,
    dry_run: bool = False,
    max_graphs: int | None = None,
) -> Callable[..., Any]:
    """The same for a function: a callable with `clear_cache()` and `clear_inputs()`."""
    return GraphCache(function, max_graphs)


def device_of(module: torch.nn.Module) -> str:
    """The type of device a module's parameters are on; cpu without parameters."""
    parameter = next(module.parameters(), None)
    return "cpu" if parameter is None else parameter.device.type
