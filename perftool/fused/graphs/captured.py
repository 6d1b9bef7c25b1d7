"""Captures a function for one input layout as a forward graph and, if gradients are needed, a backward graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils._pytree import TreeSpec, tree_flatten, tree_map_only, tree_unflatten

from perftool.fused.graphs.capture import HPUGraph, graph
from perftool.fused.graphs.record import GraphCaptureError

STALE = (
    "This backward pass belongs to an earlier call to a captured module; a later call has overwritten the"
    " memory it needs. Run backward before the module is called again with the same input shapes."
)

_A_TENSOR = object()
GraphKey = tuple[Hashable, ...]


@dataclass(frozen=True)
class CallInputs:
    """The leaves of (args, kwargs); `leaves` contains `_A_TENSOR` in place of each tensor in `tensors`."""

    tensors: tuple[Tensor, ...]
    leaves: tuple[Any, ...]
    structure: TreeSpec

    def rebuild(self, tensors: tuple[Tensor, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return (args, kwargs) of the call with `tensors` in place of its own tensors."""
        remaining = iter(tensors)
        args, kwargs = tree_unflatten(
            [next(remaining) if leaf is _A_TENSOR else leaf for leaf in self.leaves], self.structure
        )
        return args, kwargs

    def key(self) -> GraphKey:
        """Return the key under which a graph is reused. Unlike Gaudi's key, it includes the dtype, because copying a
        float tensor into an integer tensor would truncate the values. Raise GraphCaptureError for an unhashable value.
        """
        for leaf in self.leaves:
            if not isinstance(leaf, Hashable):
                raise GraphCaptureError(f"An argument of type {type(leaf).__name__} cannot be part of a graph.")
        devices = ("cpu", "cuda")
        return (
            repr(self.structure),
            *((each.size(), each.stride(), each.dtype, each.device, each.requires_grad) for each in self.tensors),
            *((type(leaf), leaf) for leaf in self.leaves),
            *((torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in devices),
        )


def flatten_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallInputs:
    """Separate the tensors of a call from its other arguments. The tensors may be in nested tuples, lists and
    dictionaries."""
    leaves, structure = tree_flatten((args, kwargs))
    tensors = tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))
    return CallInputs(tensors, tuple(_A_TENSOR if isinstance(leaf, Tensor) else leaf for leaf in leaves), structure)


class CapturedCall:
    """A function of tensors that replays graphs on static memory.

    Results live in that memory: the next call overwrites them, so clone results that you want to keep. `state` contains
    tensors (a module's buffers) that capturing must not change.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        sample: CallInputs,
        parameters: Iterable[Tensor] = (),
        state: Iterable[Tensor] = (),
        differentiable: bool = True,
        warmups: int = 0,
        allow_unused_input: bool = False,
    ) -> None:
        self._function = function
        self._sample = sample
        self._static = tuple(
            tensor.detach().clone().requires_grad_(differentiable and tensor.requires_grad) for tensor in sample.tensors
        )
        self._parameters = tuple(parameter for parameter in parameters if parameter.requires_grad)
        self._differentiable = differentiable
        self._allow_unused = allow_unused_input
        self._generation = 0
        device = sample.tensors[0].device.type if sample.tensors else None
        self.forward_graph: HPUGraph = HPUGraph(device)
        self.backward_graph: HPUGraph | None = None
        kept = [(tensor, tensor.clone()) for tensor in state]
        self._warm_up(warmups, device)
        self._capture(device)
        with torch.no_grad():
            for tensor, copy in kept:
                tensor.copy_(copy)

    @property
    def captured_outputs(self) -> Any:
        """The results of the captured run, without gradient history."""
        return tree_map_only(Tensor, Tensor.detach, tree_unflatten(self._outputs, self._structure))

    def __call__(self, tensors: Sequence[Tensor]) -> Any:
        """Copy the tensors in, replay, and return the outputs, which are differentiable if a backward graph was
        captured."""
        if self.backward_graph is None:
            self._replay_forward(tensors)
            return self.captured_outputs
        results = _Replay.apply(self, len(tensors), *tensors, *self._parameters)  # type: ignore[no-untyped-call]
        flat = list(self._outputs)
        for index, result in zip(self._tensor_outputs, results, strict=True):
            flat[index] = result
        return tree_unflatten(flat, self._structure)

    def _run(self) -> Any:
        args, kwargs = self._sample.rebuild(self._static)
        return self._function(*args, **kwargs)

    def _warm_up(self, times: int, device: str | None) -> None:
        """Run the function `times` times, on CUDA at least three times: CUDA libraries allocate memory on first use,
        which must not happen within a capture."""
        on_side = device == "cuda"
        with torch.set_grad_enabled(self._differentiable), _side_stream() if on_side else nullcontext():
            for _ in range(max(times, 3) if on_side else times):
                results = [output for output in tree_flatten(self._run())[0] if _has_gradient(output)]
                if results:
                    self._gradients(results, [torch.empty_like(output) for output in results])

    def _capture(self, device: str | None) -> None:
        with torch.set_grad_enabled(self._differentiable):
            with graph(self.forward_graph):
                outputs = self._run()
            self._outputs, self._structure = tree_flatten(outputs)
            self._tensor_outputs = [i for i, x in enumerate(self._outputs) if isinstance(x, Tensor)]
            differentiable = [output for output in self._outputs if _has_gradient(output)]
            if not differentiable:
                return
            self.backward_graph = HPUGraph(device)
            self._grad_outputs = [torch.zeros_like(output) for output in differentiable]
            with graph(self.backward_graph):
                self._grads = self._gradients(differentiable, self._grad_outputs)
        # A second reference makes autograd copy the gradient instead of reusing its memory.
        self._grads = tuple(None if grad is None else grad.detach() for grad in self._grads)

    def _gradients(self, outputs: list[Tensor], grad_outputs: list[Tensor]) -> tuple[Tensor | None, ...]:
        """Return a gradient for each static input and parameter, or None for those that need none or are not
        connected."""
        sources = (*self._static, *self._parameters)
        wanted = [source for source in sources if source.requires_grad]
        found = iter(torch.autograd.grad(outputs, wanted, grad_outputs, allow_unused=self._allow_unused))
        return tuple(next(found) if source.requires_grad else None for source in sources)

    def _replay_forward(self, tensors: Sequence[Tensor]) -> int:
        with torch.no_grad():
            for static, tensor in zip(self._static, tensors, strict=True):
                if static.data_ptr() != tensor.data_ptr():
                    static.copy_(tensor)
        self.forward_graph.replay()
        self._generation += 1
        return self._generation

    def _replay_backward(self, generation: int, grads: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
        if generation != self._generation:
            raise RuntimeError(STALE)
        assert self.backward_graph is not None
        for static, grad in zip(self._grad_outputs, grads, strict=True):
            static.copy_(grad)
        self.backward_graph.replay()
        return self._grads


class _Replay(torch.autograd.Function):
    """Connects the two graphs of a CapturedCall to autograd. Parameters are passed as inputs to get gradients."""

    @staticmethod
    def forward(ctx: Any, call: CapturedCall, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.call, ctx.generation = call, call._replay_forward(tensors[:count])
        captured = [call._outputs[index] for index in call._tensor_outputs]
        results = tuple(output.detach() for output in captured)
        ctx.differentiable = [_has_gradient(output) for output in captured]
        without = [result for result, flag in zip(results, ctx.differentiable, strict=True) if not flag]
        ctx.mark_non_differentiable(*without)
        return results

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        wanted = [grad for grad, flag in zip(grads, ctx.differentiable, strict=True) if flag]
        return (None, None, *ctx.call._replay_backward(ctx.generation, wanted))


@contextmanager
def _side_stream() -> Iterator[None]:
    """Run the block on a side stream, after earlier work on the current stream; the current stream then waits for the
    block."""
    present, side = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(present)
    with torch.cuda.stream(side):
        yield
    present.wait_stream(side)


def _has_gradient(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad
