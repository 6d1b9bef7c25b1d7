"""`HPUGraph` and `graph` capture a region once and replay it on the same memory.

On a Gaudi, a region is a native HPU graph; on CUDA, a CUDA graph. On a CPU, it is a recording of its operators, which
also run during the capture. All memory that the region reads or writes must stay at its address; Python values, such as
an optimizer's step count, are frozen.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from perftool.fused.dispatch import choose, has_gaudi, native, register, register_native
from perftool.fused.graphs.record import GraphCaptureError, Recording

OP = "HPUGraph"
IN_PROGRESS = "GRAPH:: Capture in progress"
OTHER_STREAM = "GRAPH:: Capture must end on the same stream it began on."
OTHER_SIZES = "HPU GRAPH:: Mark User Input Sizes is not same Replay Input Sizes"

register_native(OP, "hpu")
register(OP, "fast", ("cuda",))
register(OP, "reference", ("cpu",))


def current_device_type() -> str:
    """Return the default device type for captures: the first available one of hpu, cuda and cpu."""
    return "hpu" if has_gaudi() else "cuda" if torch.cuda.is_available() else "cpu"


class _CudaGraph:
    """PyTorch's own CUDA graph, which PyTorch captures on a side stream."""

    def __init__(self) -> None:
        self._graph = torch.cuda.CUDAGraph()
        self._context = torch.cuda.graph(self._graph)
        self.begin, self.replay = self._context.__enter__, self._graph.replay

    def end(self) -> None:
        self._context.__exit__(None, None, None)

    abandon = end

    def reads(self, tensor: Tensor) -> bool:
        return tensor.is_cuda


class HPUGraph:
    """A captured region. On a Gaudi, the constructor returns the native object.

    `device` ("cpu" or "cuda") is only needed to override the default device.
    """

    def __new__(cls, device: str | None = None) -> Any:
        """Create a native graph if that implementation is selected, otherwise an object of this class."""
        if choose(OP, device or current_device_type()) == "habana":
            return native("hpu", "HPUGraph")()
        return super().__new__(cls)

    def __init__(self, device: str | None = None) -> None:
        self._device = device or current_device_type()
        self._owner: object = None
        self.reset()

    def reset(self) -> None:
        """Forget the captured region and the marked tensors; the object can capture again."""
        if self._owner is not None:
            raise RuntimeError(IN_PROGRESS)
        self._region: _CudaGraph | Recording | None = None
        self._inputs: list[Tensor] = []
        self._outputs: list[Tensor] = []

    def capture_begin(self, dry_run: bool = False) -> None:
        """Start capturing on the current stream. Raise RuntimeError if this graph is already capturing.

        `dry_run` only matters on a Gaudi.
        """
        if self._owner is not None:
            raise RuntimeError(IN_PROGRESS)
        region = _CudaGraph() if self._device == "cuda" else Recording()
        region.begin()
        self._region, self._owner = region, self._stream()

    def capture_end(self) -> None:
        """Stop capturing. Raise RuntimeError unless called on the stream (on a CPU, the thread) that started it."""
        if self._region is None or self._owner != self._stream():
            raise RuntimeError(OTHER_STREAM)
        self._owner = None
        self._region.end()

    def abandon(self) -> None:
        """Stop capturing and discard the capture, because the region raised an error."""
        self._owner = None
        if self._region is not None:
            self._region.abandon()
        self.reset()

    def replay(self, asynchronous: bool = False) -> None:
        """Run the captured region again on the current contents of its memory. Raise RuntimeError while capturing, and
        GraphCaptureError if nothing has been captured.

        `asynchronous` has no effect: a replay on CUDA never waits, and a replay on a CPU always does.
        """
        if self._owner is not None:
            raise RuntimeError(IN_PROGRESS)
        if self._region is None:
            raise GraphCaptureError("Nothing has been captured, so nothing can be replayed.")
        self._region.replay()

    def replayV2(self, static_tlist: Sequence[Tensor], tlist: Sequence[Tensor], asynchronous: bool = False) -> None:
        """Copy each tensor of `tlist` into its counterpart in `static_tlist`, then replay. Raise RuntimeError if the
        shapes differ."""
        if [tensor.shape for tensor in static_tlist] != [tensor.shape for tensor in tlist]:
            raise RuntimeError(OTHER_SIZES)
        with torch.no_grad():
            for static, tensor in zip(static_tlist, tlist, strict=True):
                static.copy_(tensor)
        self.replay(asynchronous)

    def replayV3(self, tlistI: Sequence[Tensor], asynchronous: bool = False) -> None:
        """Copy `tlistI` into the marked inputs, then replay. Raise RuntimeError if the shapes differ."""
        self.replayV2(self._inputs, tlistI, asynchronous)

    def mark_user_inputs(self, static_tlist: Sequence[Tensor]) -> None:
        """Mark the tensors into which `replayV3` copies its inputs."""
        self._inputs = [*static_tlist]

    def mark_user_outputs(self, static_tlist: Sequence[Tensor]) -> None:
        """Mark results, so that they stay alive as long as the graph."""
        self._outputs = [*static_tlist]

    def get_user_input_match_indices(self) -> list[int]:
        """Return the positions of the marked inputs that the captured region reads."""
        region = self._region
        return [index for index, tensor in enumerate(self._inputs) if region is not None and region.reads(tensor)]

    def clear_inputs(self) -> None:
        """Forget the marked inputs, so that their memory can be freed."""
        self._inputs = []

    def _stream(self) -> object:
        return torch.cuda.current_stream() if self._device == "cuda" else threading.get_ident()


@contextmanager
def graph(hpu_graph: Any, stream: Any = None, dry_run: bool = False) -> Iterator[None]:
    """Capture the block into `hpu_graph`; `stream` and `dry_run` only matter on a Gaudi.

    If the block raises an error, the capture ends and the graph is reset before the error propagates.
    """
    if not isinstance(hpu_graph, HPUGraph):
        with native("hpu", "graph")(hpu_graph, stream=stream, dry_run=dry_run):
            yield
        return
    hpu_graph.capture_begin(dry_run=dry_run)
    try:
        yield
    except BaseException:
        hpu_graph.abandon()
        raise
    hpu_graph.capture_end()
