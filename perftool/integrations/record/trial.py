"""Tries changes on a model: repeats a call to it, with its backward pass, with each change, and measures the times.

Run this only in a forked child: the call changes the model, and may do anything else that the program's code does.
"""

from __future__ import annotations

import copy
import random
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from perftool.integrations.op_speeds import CHANNELS_LAST
from perftool.model.cut_text import cut_text

_CONVOLUTIONS = (torch.nn.Conv2d, torch.nn.Conv3d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d)
# The size of the matmul that shows whether BF16 is fast.
_SIZE = 512
# Each change runs until its runs have taken this long in total, in s, but at least and at most this many times.
_ENOUGH_S, _FEWEST_RUNS, _MOST_RUNS = 2.0, 3, 6
# If convolutions take a smaller share of the forward pass, no memory layout is tried.
_CONVOLVES = 0.05
_LONGEST_ERROR, _DEEPEST = 200, 50


@dataclass(frozen=True)
class Call:
    """A call to ``module``, and whether gradients were enabled."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    differentiated: bool

    def inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return a copy of the inputs, because the call may change them."""
        copied: tuple[tuple[Any, ...], dict[str, Any]] = tree_map(_copied, (self.args, dict(self.kwargs)))
        return copied

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], change: _Change) -> Any:
        """Run the forward pass with ``change``, and return its result."""
        if change.channels_last:
            args, kwargs = tree_map(_in_channels_last, (args, kwargs))
        if change.bf16_weights:
            args, kwargs = tree_map(_in_bf16, (args, kwargs))
        with torch.autocast("cpu", dtype=torch.bfloat16) if change.bf16 else nullcontext():
            return self.module(*args, **kwargs)

    @property
    def states(self) -> list[torch.Tensor]:
        return [*self.module.parameters(), *self.module.buffers()]

    @property
    def convolutions(self) -> list[Any]:
        return [one for one in self.module.modules() if isinstance(one, _CONVOLUTIONS)]


@dataclass(frozen=True)
class _Change:
    """A change to the program: autocast with BF16, with the depthwise convolutions in FP32; channels_last; or weights
    and inputs in BF16."""

    key: str
    bf16: bool = False
    fp32_depthwise: bool = False
    channels_last: bool = False
    bf16_weights: bool = False


_BASE = _Change("base")


class _Times:
    """The times of the runs with each change, in s. Starts no run that would end after ``until``, or, if it is the
    first one with its change, after ``latest``."""

    def __init__(self, call: Call, until: float, latest: float) -> None:
        self.failed: list[str] = []
        # The first error in BF16, and the lines of its stack, the innermost first.
        self.error = ""
        self.error_lines: list[tuple[str, int]] = []
        self._call = call
        self._until, self._latest = until, latest
        # The times of whole runs, and those of their forward passes if the backward passes may be left out.
        self._taken: dict[str, list[float]] = {}
        self._forward: dict[str, list[float]] = {}
        # If only this thread works, its CPU time is the time without any wait for a core.
        self._clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
        self._longest = 0.0

    def warm_up(self) -> bool:
        """Run the unchanged call once, untimed. A forked process copies each page of memory that it writes, which takes
        time. Return whether convolutions take enough of the forward pass for a memory layout to matter."""
        begins: list[float] = []
        in_convolutions: list[float] = []
        hooks = [
            hook
            for one in self._call.convolutions
            for hook in (
                one.register_forward_pre_hook(lambda *_: begins.append(self._clock())),
                one.register_forward_hook(lambda *_: in_convolutions.append(self._clock() - begins.pop())),
            )
        ]
        self._run(_BASE)
        for hook in hooks:
            hook.remove()
        whole = sum(self._forward.get(_BASE.key) or self._taken[_BASE.key])
        self._taken[_BASE.key].clear()
        self._forward.clear()
        return sum(in_convolutions) >= _CONVOLVES * whole

    def measure(self, changes: list[_Change]) -> None:
        """Measure ``changes`` and the unchanged call by turns, because other processes may disturb some of the runs. If
        there is no time for all of them, the fastest changes run most often."""
        for _ in range(_MOST_RUNS):
            for change in (_BASE, *changes):
                self._run(change)
            changes = sorted(changes, key=lambda change: min(self._taken[change.key], default=0))

    def found(self) -> dict[str, Any]:
        """The shortest time with each change that works, in ns; ``forward``: the same without the backward pass."""
        return {**_shortest(self._taken), "forward": _shortest(self._forward)}

    def _run(self, change: _Change) -> None:
        taken = self._taken.setdefault(change.key, [])
        enough = len(taken) >= _FEWEST_RUNS and sum(taken) >= _ENOUGH_S
        until = self._until if taken else self._latest
        if enough or change.key in self.failed or time.monotonic() + self._longest > until:
            return
        try:
            with _changed(self._call, change):
                # Random numbers decide what some models compute.
                torch.manual_seed(0)
                random.seed(0)
                args, kwargs = self._call.inputs()
                begin = self._clock()
                result = self._call.run(args, kwargs, change)
                if self._call.differentiated:
                    self._forward.setdefault(change.key, []).append(self._clock() - begin)
                    _backward(result)
                taken.append(self._clock() - begin)
        except Exception as error:  # noqa: BLE001 - any error means that the model does not work with this change
            taken.clear()
            self._forward.pop(change.key, None)
            self.failed.append(change.key)
            if change.bf16 and not self.error:
                self.error = cut_text(" ".join(f"{type(error).__name__}: {error}".split()), _LONGEST_ERROR)
                self.error_lines = _lines_of(error)
        self._longest = max(self._longest, *taken, 0)


def _shortest(taken: Mapping[str, list[float]]) -> dict[str, int]:
    return {f"{key}_ns": round(1e9 * min(times)) for key, times in taken.items() if times}


def tried(call: Call, until: float, latest: float | None = None) -> dict[str, Any]:
    """Return the shortest time of ``call``, in ns, unchanged and with each change, with and without its backward pass,
    the changes that fail, and the first error in BF16.

    Start no run that would end after ``until``, a time of ``time.monotonic``; the first run with each change may end by
    ``latest``. Return an empty dict if no change applies or the call cannot be repeated."""
    changes = _changes(call, bf16=_has_bf16())
    if not changes:
        return {}
    times = _Times(call, until, until if latest is None else latest)
    if not times.warm_up():
        changes = [change for change in changes if not change.channels_last]
    if not changes:
        return {}
    times.measure(changes)
    found = {**times.found(), "failed": times.failed, "error": times.error, "error_lines": times.error_lines}
    return {} if _BASE.key in times.failed else found


def _lines_of(error: BaseException) -> list[tuple[str, int]]:
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    return lines[: -_DEEPEST - 1 : -1]


def _has_bf16() -> bool:
    """Whether the processor has instructions for BF16. Otherwise, PyTorch emulates it, many times slower."""
    return _product_time(torch.bfloat16) < _product_time(torch.float32)


def _product_time(dtype: torch.dtype) -> float:
    operand = torch.ones(_SIZE, _SIZE, dtype=dtype)
    times = []
    for _ in range(_MOST_RUNS):
        begin = time.perf_counter()
        torch.mm(operand, operand)
        times.append(time.perf_counter() - begin)
    return min(times)


def _changes(call: Call, *, bf16: bool) -> list[_Change]:
    changes = []
    convolutions = call.convolutions
    if bf16:
        changes.append(_Change("bf16", bf16=True))
    if bf16 and any(one.groups > 1 for one in convolutions):
        changes.append(_Change("bf16_dense", bf16=True, fp32_depthwise=True))
    if any(_is_apart(one.weight) for one in convolutions):
        changes.append(_Change("channels_last", channels_last=True))
        if bf16:
            changes.append(_Change("bf16_channels_last", bf16=True, channels_last=True))
    # In training, small updates would vanish in BF16 weights.
    if bf16 and not call.differentiated and all(map(_is_fp32, call.states)):
        changes.append(_Change("bf16_weights", bf16_weights=True))
    return changes


def _is_fp32(state: torch.Tensor) -> bool:
    # Other types are not converted, apart from complex ones, which would lose a part.
    return state.dtype is torch.float32 or not (state.is_floating_point() or state.is_complex())


def _is_apart(weight: torch.Tensor) -> bool:
    layout = CHANNELS_LAST.get(weight.dim())
    return layout is not None and not weight.is_contiguous(memory_format=layout)


@contextmanager
def _changed(call: Call, change: _Change) -> Iterator[None]:
    """Change the model as a program would once, before its steps."""
    for parameter in call.module.parameters():
        parameter.grad = None
    apart = [one for one in call.convolutions if change.channels_last and _is_apart(one.weight)]
    wrapped = [one for one in call.convolutions if change.fp32_depthwise and one.groups > 1]
    for one in apart:
        one.weight.data = one.weight.data.contiguous(memory_format=CHANNELS_LAST[one.weight.dim()])
    for one in wrapped:
        one.forward = _in_fp32(one.forward)
    if change.bf16_weights:
        call.module.to(torch.bfloat16)
    try:
        yield
    finally:
        if change.bf16_weights:
            call.module.to(torch.float32)
        for one in apart:
            one.weight.data = one.weight.data.contiguous()
        for one in wrapped:
            del one.forward


def _in_fp32(forward: Any) -> Any:
    def compute(operand: torch.Tensor, *others: Any) -> Any:
        with torch.autocast("cpu", enabled=False):
            return forward(operand.float(), *others)

    return compute


def _copied(value: Any) -> Any:
    """Copy a part of the inputs. Cut the graph of a tensor: its backward pass belongs to another module."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    return copy.deepcopy(value)


def _in_channels_last(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim() in CHANNELS_LAST:
        return value.contiguous(memory_format=CHANNELS_LAST[value.dim()])
    return value


def _in_bf16(value: Any) -> Any:
    return value.to(torch.bfloat16) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _backward(result: Any) -> None:
    """Run the backward pass from all results that the model returned: each may be a part of the loss. A result from
    which another one was computed, such as the logits beside a loss, adds little work."""
    ends = [one for one in tree_leaves(_members(result)) if isinstance(one, torch.Tensor) and one.requires_grad]
    if ends:
        _End.apply(*ends).backward()  # type: ignore[no-untyped-call]


class _End(torch.autograd.Function):
    """A number with gradient 1 for each element of the tensors. Gradients that are passed to ``backward`` make PyTorch
    import a module, and a child that may open no files can't import any."""

    @staticmethod
    def forward(ctx: Any, *ends: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*ends)
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, _: Any) -> Any:
        return tuple(map(torch.ones_like, ctx.saved_tensors))


def _members(result: Any) -> Any:
    """``result`` as a structure of built-in classes. Some models return an object with attributes."""
    if isinstance(result, dict):
        return list(result.values())
    if isinstance(result, (torch.Tensor, tuple, list)):
        return result
    return list(getattr(result, "__dict__", {}).values())
