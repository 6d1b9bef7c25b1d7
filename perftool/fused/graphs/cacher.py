"""`ModuleCacher`: training with one captured graph for each kind of input."""

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
from perftool.fused.graphs.captured import CapturedCall
from perftool.fused.graphs.inputs import CallInputs, GraphKey, flatten_call
from perftool.fused.graphs.wrapped import device_of

LOG = logging.getLogger(__name__)
PARALLEL = "Use DataParallel/DistributedDataParallel only after wrapping with ModuleCacher"
KEYWORDS_DROPPED = "[WARNING] Variable keyword arguments will not be supported."


class ModuleCacher:
    """Wraps a module so that training replays graphs, at most `max_graphs` of them.

    `ModuleCacher(10)(model)` changes the model in place and returns it. Graphs are used in training mode with gradients
    enabled and unless `PT_HPU_LAZY_MODE` is set to something else than 1; all other calls, and further kinds of input,
    run the original forward.
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
        """The wrapped model: `model` itself, or a copy of it with `inplace` False.

        With `use_lfu` nothing is captured until `model.capture_start()` ... `model.capture_end()` has
        counted inputs; the most frequent kinds get the graphs. `verbose` logs hits every `log_frequency`
        calls. `have_grad_accumulation` has no effect here, as accumulation happens outside the graphs;
        `asynchronous`, `disable_tensor_cache` and `dry_run` matter on a Gaudi only. AssertionError for a
        model that is wrapped in DataParallel already or takes positional-only or `*args` arguments.
        """
        options = (use_lfu, inplace, allow_unused_input, asynchronous, have_grad_accumulation,
                   log_frequency, verbose, disable_tensor_cache, dry_run)  # fmt: skip
        if choose(OP, device_of(model)).name == "habana":
            wrapped: torch.nn.Module = native("hpu", "ModuleCacher")(self.max_graphs)(model, *options)
            return wrapped
        parallel = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
        assert not isinstance(model, parallel), PARALLEL
        names = _argument_names(model.forward)
        target = model if inplace else copy.deepcopy(model)
        cached = CachedForward(target, names, self.max_graphs, use_lfu, allow_unused_input)
        cached.log_frequency = log_frequency if verbose else None
        target.forward = cached
        for method in ("capture_start", "capture_end", "set_iteration_count", "clear_cache"):
            object.__setattr__(target, method, getattr(cached, method))
        return target


class CachedForward:
    """The forward of a wrapped module. `hits` and `uncached` count calls with and without one of `graphs`."""

    def __init__(
        self, module: torch.nn.Module, names: tuple[str, ...], max_graphs: int, use_lfu: bool, unused: bool
    ) -> None:
        self._module = module
        self._names = names
        self._original: Callable[..., Any] = module.forward
        self._max_graphs = max_graphs
        self._unused = unused
        self.graphs: dict[GraphKey, CapturedCall] = {}
        self._recording: Counter[GraphKey] | None = None
        # Without counting first, every kind of input gets a graph until `max_graphs` exist.
        self._welcome: frozenset[GraphKey] | None = frozenset() if use_lfu else None
        self.log_frequency: int | None = None
        self.hits = 0
        self.uncached = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Replay, capture or run the original, depending on this input."""
        kwargs = {name: value for name, value in kwargs.items() if name in self._names}
        if not self._enabled():
            return self._run_original(args, kwargs)
        inputs = flatten_call(args, kwargs)
        call = self._graph_for(inputs)
        if call is None:
            return self._run_original(args, kwargs)
        self.hits += 1
        self._log()
        return call(inputs.tensors)

    def capture_start(self) -> None:
        """Start counting how often each kind of input occurs; meanwhile calls run the original."""
        self._recording = Counter()

    def capture_end(self) -> None:
        """Stop counting; from now on, the most frequent kinds of input are captured."""
        if self._recording is None:
            raise RuntimeError("capture_end was called without capture_start")
        self._welcome = frozenset(key for key, _ in self._recording.most_common(self._max_graphs))
        self._recording = None

    def set_iteration_count(self, count: int) -> None:
        """Accepted for gradient accumulation on a Gaudi; here every micro-batch uses the same graph."""

    def clear_cache(self) -> None:
        """Forget every graph and its memory."""
        self.graphs.clear()

    def _enabled(self) -> bool:
        lazy = os.environ.get("PT_HPU_LAZY_MODE", "1") == "1"
        return lazy and self._module.training and torch.is_grad_enabled()

    def _graph_for(self, inputs: CallInputs) -> CapturedCall | None:
        key = inputs.key()
        if self._recording is not None:
            self._recording[key] += 1
            return None
        if key in self.graphs:
            return self.graphs[key]
        if len(self.graphs) >= self._max_graphs or (self._welcome is not None and key not in self._welcome):
            return None
        self.graphs[key] = CapturedCall(
            self._original,
            inputs,
            self._module.parameters(),
            self._module.buffers(),
            allow_unused_input=self._unused,
        )
        return self.graphs[key]

    def _run_original(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.uncached += 1
        self._log()
        return self._original(*args, **kwargs)

    def _log(self) -> None:
        if self.log_frequency and (self.hits + self.uncached) % self.log_frequency == 0:
            LOG.info("graphs %d, cached calls %d, uncached %d", len(self.graphs), self.hits, self.uncached)


def _argument_names(forward: Callable[..., Any]) -> tuple[str, ...]:
    """The names of forward's arguments; AssertionError for kinds of arguments that graphs do not support."""
    names: list[str] = []
    for name, parameter in inspect.signature(forward).parameters.items():
        unsupported = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL)
        assert not unsupported, f"Unsupported argument type : {parameter.kind.description}"
        if parameter.kind is parameter.VAR_KEYWORD:
            warnings.warn(KEYWORDS_DROPPED, stacklevel=4)
        else:
            names.append(name)
    return tuple(names)
