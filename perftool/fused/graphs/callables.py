"""`make_graphed_callables`: replace a module's forward, or a function, by captured graphs."""

from __future__ import annotations

from typing import Any

import torch

from perftool.fused.dispatch import choose, native
from perftool.fused.graphs.capture import OP
from perftool.fused.graphs.captured import CapturedCall, flatten_call

Tensors = tuple[torch.Tensor, ...]


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    warmups: int = 0,
    allow_unused_input: bool = False,
    asynchronous: bool = False,
    disable_tensor_cache: bool = False,
    dry_run: bool = False,
) -> Any:
    """Capture forward and backward of a callable, or of each of a tuple of them, at the sample's shapes.

    A module is changed in place and returned: its forward replays while its training flag is the same as during the
    capture, and is the original otherwise. A function is not changed; a new one is returned. Samples are a tuple of
    tensors, or a tuple of such tuples. Results are overwritten by the next call.

    AssertionError for a module with hooks or with buffers that need gradients, and for samples that are not
    tensors; ValueError for a call with other shapes than the sample's. The last three options matter on a
    Gaudi only.
    """
    several = isinstance(callables, tuple)
    functions = callables if several else (callables,)
    samples: tuple[Tensors, ...] = sample_args if several else (sample_args,)
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


def _check(function: Any, sample: Tensors) -> None:
    tensors_only = isinstance(sample, tuple) and all(isinstance(arg, torch.Tensor) for arg in sample)
    assert tensors_only, "sample_args must be a tuple of tensors for each callable"
    if isinstance(function, torch.nn.Module):
        hooks = (function._forward_hooks, function._forward_pre_hooks, function._backward_hooks)
        assert not any(hooks), "a module must not have hooks when it is captured; add them afterwards"
        with_grad = any(buffer.requires_grad for buffer in function.buffers())
        assert not with_grad, "a module's buffers must not require gradients when it is captured"


def _graphed(function: Any, sample: Tensors, warmups: int, allow_unused: bool) -> Any:
    is_module = isinstance(function, torch.nn.Module)
    original, training = (function.forward, function.training) if is_module else (function, None)
    parameters, buffers = (function.parameters(), function.buffers()) if is_module else ((), ())
    call = CapturedCall(original, flatten_call(sample, {}), parameters, buffers, True, warmups, allow_unused)
    expected = [tuple(tensor.shape) for tensor in sample]

    def forward(*args: torch.Tensor, **kwargs: Any) -> Any:
        if is_module and function.training != training:
            return original(*args, **kwargs)
        given = [tuple(tensor.shape) for tensor in args]
        if given != expected:
            raise ValueError(f"captured for input shapes {expected}, called with {given}")
        return call(args, **kwargs)

    if not is_module:
        return forward
    function.forward = forward
    return function
