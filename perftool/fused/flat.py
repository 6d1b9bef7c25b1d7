"""Many tensors in one padded buffer, so that one kernel call covers them all.

Every tensor starts on a multiple of ROW elements and the padding holds zeros. A row therefore belongs to one
tensor, which makes per-tensor norms a by-product of row norms.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import eq

import torch
from torch import Tensor

from perftool.fused.unchanged import Memory, same_memory, same_objects

ROW = 64


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill their memory without gaps or overlaps, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def linear(tensor: Tensor) -> Tensor:
    """The elements of a dense tensor in memory order: a 1-dim view."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    return tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())


@dataclass(frozen=True)
class Layout:
    """Where each of a list of dense tensors lies in a buffer of `size` elements."""

    shapes: tuple[torch.Size, ...]
    strides: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    size: int

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> Layout:
        """The layout that keeps shape and order of dimensions of each tensor."""
        offsets, size = [], 0
        for tensor in tensors:
            offsets.append(size)
            size += -(-tensor.numel() // ROW) * ROW
        shapes = tuple(tensor.shape for tensor in tensors)
        return cls(shapes, tuple(tensor.stride() for tensor in tensors), tuple(offsets), size)

    def views(self, buffer: Tensor) -> list[Tensor]:
        """The tensors inside a buffer of this layout."""
        placed = zip(self.shapes, self.strides, self.offsets, strict=True)
        return [buffer.as_strided(shape, stride, offset) for shape, stride, offset in placed]

    @cached_property
    def tensor_of_row(self) -> Tensor:
        """[rows] int64 on the CPU: the index of the tensor that each row belongs to."""
        counts = torch.tensor([-(-shape.numel() // ROW) for shape in self.shapes])
        return torch.repeat_interleave(torch.arange(len(counts)), counts)

    def norms(self, buffer: Tensor) -> Tensor:
        """[tensors] the 2-norm of each tensor in `buffer`, in at least float32, from one read of it."""
        sums = self._sums_of_squares(buffer)
        if buffer.device.type == "cpu" and not bool(torch.isfinite(sums).all()):
            # NaN in a gradient also reaches the padding, and would stay there when the user restores
            # finite parameters.
            self._clear_padding(buffer)
            sums = self._sums_of_squares(buffer)
        return sums.sqrt_()

    def _sums_of_squares(self, buffer: Tensor) -> Tensor:
        accumulate = torch.promote_types(buffer.dtype, torch.float32)
        squares = torch.linalg.vector_norm(buffer.view(-1, ROW), dim=1, dtype=accumulate).square_()
        sums = torch.zeros(len(self.shapes), dtype=accumulate, device=buffer.device)
        return sums.index_add_(0, self.tensor_of_row.to(buffer.device), squares)

    def _clear_padding(self, buffer: Tensor) -> None:
        ends = [*self.offsets[1:], self.size]
        for shape, offset, end in zip(self.shapes, self.offsets, ends, strict=True):
            buffer[offset + shape.numel() : end] = 0

    def by_row(self, per_tensor: Tensor) -> Tensor:
        """[rows, 1] the value of its tensor for each row, to be broadcast against `buffer.view(-1, ROW)`."""
        return per_tensor.index_select(0, self.tensor_of_row.to(per_tensor.device)).unsqueeze(1)


class FlatTensors:
    """A buffer, its layout, and the views in it.

    `handed_out` is for users of the class: whether somebody else may know the views.
    """

    handed_out = False

    def __init__(self, layout: Layout, buffer: Tensor) -> None:
        self.layout = layout
        self.buffer = buffer
        self.views = layout.views(buffer)
        self.addresses = [view.data_ptr() for view in self.views]
        self.memory = Memory(self.views)
        _known[buffer.untyped_storage().data_ptr()] = self

    @classmethod
    def zeros(cls, layout: Layout, dtype: torch.dtype, device: torch.device) -> FlatTensors:
        """A new buffer of zeros."""
        return cls(layout, torch.zeros(layout.size, dtype=dtype, device=device))

    @classmethod
    def copy_of(cls, tensors: Sequence[Tensor]) -> FlatTensors:
        """A new buffer that holds copies of dense tensors of one dtype and device."""
        flat = cls.zeros(Layout.of(tensors), tensors[0].dtype, tensors[0].device)
        torch._foreach_copy_(flat.views, list(tensors))
        return flat

    def holds(self, tensors: Sequence[Tensor]) -> bool:
        """Whether these tensors, in this order, start where the views do; their layouts are not compared."""
        return len(tensors) == len(self.views) and all(map(eq, map(Tensor.data_ptr, tensors), self.addresses))


_known: weakref.WeakValueDictionary[int, FlatTensors] = weakref.WeakValueDictionary()


def home_of(tensor: Tensor) -> FlatTensors | None:
    """The living FlatTensors in whose buffer a tensor lies, or None."""
    if tensor.layout is not torch.strided:
        return None
    return _known.get(tensor.untyped_storage().data_ptr())


def move(tensors: Sequence[Tensor], flat: FlatTensors) -> None:
    """Give every tensor the memory of its view; the values there are the caller's concern."""
    for tensor, view in zip(tensors, flat.views, strict=True):
        tensor.data = view


def find(tensors: Sequence[Tensor]) -> FlatTensors | None:
    """The living FlatTensors whose views are exactly these tensors, in order, or None."""
    flat = home_of(tensors[0]) if tensors else None
    if flat is None or not flat.holds(tensors):
        return None
    return flat if same_objects(tensors, flat.views) or same_memory(tensors, flat.views) else None


def can_move(tensor: Tensor) -> bool:
    """Whether the memory of `tensor` is seen by nobody else, so that it may be given another.

    False when another tensor, an array or a saved graph shares the storage, for memory shared between
    processes, for subclasses of Tensor, and where torch offers no way to find out.
    """
    if type(tensor) not in (Tensor, torch.nn.Parameter) or not tensor.numel() or not is_dense(tensor):
        return False
    storage = tensor.untyped_storage()
    if tensor.device.type == "cpu" and storage.is_shared():
        return False
    return storage.nbytes() == tensor.numel() * tensor.element_size() and _views_of(storage) == 1


def can_all_move(tensors: Sequence[Tensor]) -> bool:
    """Whether every tensor can move, those that lie in a FlatTensors included if they are its only users."""
    settled: dict[FlatTensors, set[int]] = {}
    for tensor in tensors:
        home = home_of(tensor)
        if home is not None:
            settled.setdefault(home, set()).add(tensor.data_ptr())
        elif not can_move(tensor):
            return False
    # Two tensors at one place, or one in the midst of another's, are fewer than the uses that are counted.
    return all(
        _views_of(home.buffer.untyped_storage()) == 1 + len(home.views) + len(users.intersection(home.addresses))
        for home, users in settled.items()
    )


def _views_of(storage: torch.UntypedStorage) -> int:
    count = getattr(torch._C, "_storage_Use_Count", None)
    # One of the uses is the handle in our hands.
    return int(count(storage._cdata)) - 1 if count else sys.maxsize


def can_replace_gradients(params: Sequence[Tensor]) -> bool:
    """Whether the gradients of all parameters are known to these parameters alone."""
    alone = _references_when_alone()
    return all(param.grad is not None and can_move(param.grad) and _references(param) == alone for param in params)


def _references(param: Tensor) -> tuple[int, int]:
    grad = param.grad
    return sys.getrefcount(grad), int(getattr(grad, "_use_count", lambda: 0)())


def _references_when_alone() -> tuple[int, int]:
    # What "alone" counts to differs between versions of Python, so it is measured on a gradient that is.
    param = torch.zeros(1, requires_grad=True)
    param.grad = torch.zeros(1)
    return _references(param)
