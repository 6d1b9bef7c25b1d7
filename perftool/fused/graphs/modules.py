"""Replaces modules' forward methods with captured graphs. `wrap_in_hpu_graph` (for inference) and `ModuleCacher` (for
training) capture a graph for each kind of input; `make_graphed_callables` captures a graph for a single kind.
"""

from __future__ import annotations

import copy
import inspect
import logging
import os
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from perftool.fused.dispatch import choose, native
from perftool.fused.graphs.capture import OP
from perftool.fused.graphs.captured import CallInputs, CapturedCall, GraphKey, flatten_call

LOG = logging.getLogger(__name__)
PARALLEL = "Use DataParallel/DistributedDataParallel only after wrapping with ModuleCacher"
KEYWORDS_DROPPED = "[WARNING] Variable keyword arguments will not be supported."


class GraphCache:
    """Replays a function with at most `max_graphs` graphs, and calls the function itself for further kinds of input."""

    def __init__(self, function: Callable[..., Any], max_graphs: int | None) -> None:
        self._function, self._max_graphs = function, max_graphs
        self.graphs: dict[GraphKey, CapturedCall] = {}

    def find(self, inputs: CallInputs, key: GraphKey, **options: Any) -> CapturedCall | None:
        """Return the graph for this kind of input. For a new kind, capture a graph with `options`, or return None if
        there are already `max_graphs` graphs."""
        if key not in self.graphs:
            if self._max_graphs is not None and len(self.graphs) >= self._max_graphs:
                return None
            self.graphs[key] = CapturedCall(self._function, inputs, **options)
        return self.graphs[key]

    def clear_cache(self) -> None:
        """Forget every graph and its memory."""
        self.graphs.clear()


class InferenceCache(GraphCache):
    """The forward method of a module wrapped for inference."""

    def __call__(
        self,
        *args: Any,
        warmup_mode: bool = False,
        bypass_hpu_graphs: bool = False,
        cache_tensors_list: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Return the function's result. The first call with a kind of input captures a graph and returns the outputs of
        the capture; later calls replay it and return the same tensors with new values, so clone results that you want
        to keep.

        `bypass_hpu_graphs` calls the function itself. `warmup_mode` skips the replay, so that a call with a captured
        kind of input returns old values. `cache_tensors_list` is accepted for scripts written for a Gaudi.
        """
        if bypass_hpu_graphs:
            return self._function(*args, **kwargs)
        inputs = flatten_call(args, kwargs)
        key = inputs.key()
        known = key in self.graphs
        call = self.find(inputs, key, differentiable=False)
        if call is None:
            return self._function(*args, **kwargs)
        return call(inputs.tensors) if known and not warmup_mode else call.captured_outputs

    def clear_inputs(self) -> None:
        """Do nothing; provided for scripts written for a Gaudi."""


def wrap_in_hpu_graph(
    module: torch.nn.Module,
    asynchronous: bool = False,
    disable_tensor_cache: bool = False,
    dry_run: bool = False,
    max_graphs: int | None = None,
) -> torch.nn.Module:
    """Make `module.forward` capture and replay graphs, and return the module. For inference only: no gradients flow.

    A new graph is captured for each combination of argument structure, tensor layouts and dtypes, autocast state and
    other values; see `InferenceCache` for the keywords of a call and the lifetime of results. The module gets the
    methods `clear_cache()` and `clear_inputs()`. `asynchronous`, `disable_tensor_cache` and `dry_run` only matter on a
    Gaudi. Raise TypeError for anything except a module.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"wrap_in_hpu_graph takes a torch.nn.Module, not {type(module).__name__}")
    if choose(OP, next(module.parameters(), torch.empty(0)).device.type) == "habana":
        options = asynchronous, disable_tensor_cache, dry_run, max_graphs
        wrapped: torch.nn.Module = native("hpu", "wrap_in_hpu_graph")(module, *options)
        return wrapped
    cache: Any = InferenceCache(module.forward, max_graphs)
    module.forward, module.clear_cache, module.clear_inputs = cache, cache.clear_cache, cache.clear_inputs
    return module


class ModuleCacher:
    """Wraps a module so that training replays graphs, at most `max_graphs` of them.

    `ModuleCacher(10)(model)` changes the model in place and returns it. Graphs are used in training mode with gradients
    enabled, if `PT_HPU_LAZY_MODE` is unset or 1; all other calls, and further kinds of input, run the original forward.
    """

    def __init__(self, max_graphs: int = 10) -> None:
        self.max_graphs = max_graphs

    def __call__(
        self,
        model: torch.nn.Module,
        use_lfu: bool = False,
        inplace: bool = True,
        allow_unused_input: bool = False,
        asynchronous: bool = False,
        have_grad_accumulation: bool = False,
        log_frequency: int = 100,
        verbose: bool = False,
        disable_tensor_cache: bool = False,
        dry_run: bool = False,
    ) -> torch.nn.Module:
        """Wrap `model` and return it; with `inplace=False`, wrap a copy.

        With `use_lfu`, inputs are counted between `model.capture_start()` and `model.capture_end()`; afterwards, only
        the most frequent kinds are captured. `verbose` logs hits every `log_frequency` calls. `have_grad_accumulation`
        has no effect, because accumulation happens outside the graphs; `asynchronous`, `disable_tensor_cache` and
        `dry_run` only matter on a Gaudi. Raise AssertionError for a model that is already wrapped in DataParallel or
        accepts positional-only or `*args` arguments.
        """
        options = (use_lfu, inplace, allow_unused_input, asynchronous, have_grad_accumulation,
                   log_frequency, verbose, disable_tensor_cache, dry_run)  # fmt: skip
        if choose(OP, next(model.parameters(), torch.empty(0)).device.type) == "habana":
            wrapped: torch.nn.Module = native("hpu", "ModuleCacher")(self.max_graphs)(model, *options)
            return wrapped
        parallel = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
        assert not isinstance(model, parallel), PARALLEL
        names = _argument_names(model.forward)
        target = model if inplace else copy.deepcopy(model)
        cached = TrainingCache(target, names, self.max_graphs, use_lfu, allow_unused_input)
        cached.log_frequency = log_frequency if verbose else None
        target.forward = cached
        for method in ("capture_start", "capture_end", "set_iteration_count", "clear_cache"):
            object.__setattr__(target, method, getattr(cached, method))
        return target


class TrainingCache(GraphCache):
    """The forward method of a wrapped module. `hits` counts the calls that use a graph, and `uncached` counts all
    others."""

    def __init__(
        self, module: torch.nn.Module, names: tuple[str, ...], max_graphs: int, use_lfu: bool, unused: bool
    ) -> None:
        super().__init__(module.forward, max_graphs)
        self._module, self._names, self._unused = module, names, unused
        self._recording: Counter[GraphKey] | None = None
        # Without `use_lfu`, every kind of input gets a graph until `max_graphs` exist.
        self._welcome: frozenset[GraphKey] | None = frozenset() if use_lfu else None
        self.log_frequency: int | None = None
        self.hits = self.uncached = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Replay a graph, capture a new graph, or call the original, depending on the kind of input."""
        kwargs = {name: value for name, value in kwargs.items() if name in self._names}
        inputs = flatten_call(args, kwargs)
        call = self._graph_for(inputs)
        self.hits += call is not None
        self.uncached += call is None
        if self.log_frequency and (self.hits + self.uncached) % self.log_frequency == 0:
            LOG.info("graphs %d, cached calls %d, uncached %d", len(self.graphs), self.hits, self.uncached)
        return self._function(*args, **kwargs) if call is None else call(inputs.tensors)

    def capture_start(self) -> None:
        """Start counting how often each kind of input occurs; until `capture_end`, calls run the original."""
        self._recording = Counter()

    def capture_end(self) -> None:
        """Stop counting; from now on, capture the most frequent kinds of input. Raise RuntimeError unless counting."""
        if self._recording is None:
            raise RuntimeError("capture_end was called without capture_start")
        self._welcome = frozenset(key for key, _ in self._recording.most_common(self._max_graphs))
        self._recording = None

    def set_iteration_count(self, count: int) -> None:
        """Do nothing; provided for scripts written for a Gaudi."""

    def _graph_for(self, inputs: CallInputs) -> CapturedCall | None:
        lazy = os.environ.get("PT_HPU_LAZY_MODE", "1") == "1"
        if not (lazy and self._module.training and torch.is_grad_enabled()):
            return None
        key = inputs.key()
        if self._recording is not None:
            self._recording[key] += 1
            return None
        if self._welcome is not None and key not in self.graphs and key not in self._welcome:
            return None
        tensors = {"parameters": self._module.parameters(), "state": self._module.buffers()}
        return self.find(inputs, key, allow_unused_input=self._unused, **tensors)


def _argument_names(forward: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the arguments of `forward`. Raise AssertionError for unsupported kinds of arguments."""
    names: list[str] = []
    for name, parameter in inspect.signature(forward).parameters.items():
        unsupported = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL)
        assert not unsupported, f"Unsupported argument type : {parameter.kind.description}"
        if parameter.kind is parameter.VAR_KEYWORD:
            warnings.warn(KEYWORDS_DROPPED, stacklevel=4)
        else:
            names.append(name)
    return tuple(names)


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    warmups: int = 0,
    allow_unused_input: bool = False,
    asynchronous: bool = False,
    disable_tensor_cache: bool = False,
    dry_run: bool = False,
) -> Any:
    """Capture forward and backward of a callable, or of each callable in a tuple, for the shapes of the samples.

    A module is changed in place and returned: its forward replays graphs while its training flag is the same as during
    the capture, and otherwise runs the original. A function is not changed; a new function is returned. The samples are
    a tuple of tensors, or for several callables a tuple of such tuples. Results are overwritten by the next call.

    Raise AssertionError for a module with hooks or with buffers that need gradients, and for samples that are not
    tensors; a call with shapes other than the sample's raises ValueError. The last three options only matter on a
    Gaudi.
    """
    several = isinstance(callables, tuple)
    functions = callables if several else (callables,)
    samples: tuple[tuple[torch.Tensor, ...], ...] = sample_args if several else (sample_args,)
    assert len(functions) == len(samples), "one tuple of sample tensors is needed for each callable"
    for function, sample in zip(functions, samples, strict=True):
        _check(function, sample)
    device = samples[0][0].device.type if samples and samples[0] else "cpu"
    if choose(OP, device) == "habana":
        return native("hpu", "make_graphed_callables")(
            callables, sample_args, warmups, allow_unused_input, asynchronous, disable_tensor_cache, dry_run
        )
    graphed = tuple(
        _graphed(function, sample, warmups, allow_unused_input)
        for function, sample in zip(functions, samples, strict=True)
    )
    return graphed if several else graphed[0]


def _check(function: Any, sample: tuple[torch.Tensor, ...]) -> None:
    tensors_only = isinstance(sample, tuple) and all(isinstance(arg, torch.Tensor) for arg in sample)
    assert tensors_only, "sample_args must be a tuple of tensors for each callable"
    if isinstance(function, torch.nn.Module):
        hooks = (function._forward_hooks, function._forward_pre_hooks, function._backward_hooks)
        assert not any(hooks), "a module must not have hooks when it is captured; add them afterwards"
        with_grad = any(buffer.requires_grad for buffer in function.buffers())
        assert not with_grad, "a module's buffers must not require gradients when it is captured"


def _graphed(function: Any, sample: tuple[torch.Tensor, ...], warmups: int, allow_unused: bool) -> Any:
    is_module = isinstance(function, torch.nn.Module)
    original, training = (function.forward, function.training) if is_module else (function, None)
    parameters, buffers = (function.parameters(), function.buffers()) if is_module else ((), ())
    call = CapturedCall(original, flatten_call(sample, {}), parameters, buffers, True, warmups, allow_unused)
    expected = [tuple(tensor.shape) for tensor in sample]

    def forward(*args: torch.Tensor, **kwargs: Any) -> Any:
        if is_module and function.training != training:
            return original(*args, **kwargs)
        shapes = [tuple(tensor.shape) for tensor in args]
        if shapes != expected:
            raise ValueError(f"captured for input shapes {expected}, called with {shapes}")
        return call(args, **kwargs)

    if not is_module:
        return forward
    function.forward = forward
    return function
