"""Records a region of a program: every operator call below autograd, and the memory that each one touched. Tensors are
identified by storage and geometry, not by object: autograd creates new tensor objects for memory it saved, and these
must be recognised as the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from perftool.errors import PerfToolError


class GraphCaptureError(PerfToolError):
    """Something in a captured region cannot be replayed; the text names it."""


@dataclass(frozen=True)
class View:
    """A tensor's place in memory. `storage` identifies memory within one recording; offsets in elements."""

    storage: int
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Call:
    """One operator call: its arguments and results, with a View in place of each tensor."""

    op: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: Any

    def views(self) -> Iterator[View]:
        """Every tensor among the arguments."""
        return (leaf for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, View))


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs operators and records them. `calls` are in order; `outside` holds the tensors over memory that existed
    before, by view; `inside` holds the first View of memory allocated meanwhile, by storage, even if it is freed by
    now.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Call] = []
        self.outside: dict[View, torch.Tensor] = {}
        self.inside: dict[int, View] = {}
        # A weak reference keeps the address of freed memory from being mistaken for that of new memory.
        self._seen: dict[int, StorageWeakRef] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record the call, run it, record its results."""
        kwargs = kwargs or {}
        if func.namespace == "profiler":
            return func(*args, **kwargs)
        _refuse_unreplayable(func, args, kwargs)
        noted_args, noted_kwargs = tree_map(self._note_argument, (args, kwargs))
        results = func(*args, **kwargs)
        self.calls.append(Call(func, noted_args, noted_kwargs, tree_map(self._note_result, results)))
        return results

    def surviving(self) -> dict[int, torch.Tensor]:
        """Tensors over the memory allocated during the recording that someone still holds, by storage."""
        found: dict[int, torch.Tensor] = {}
        for storage, view in self.inside.items():
            memory = torch.UntypedStorage._new_with_weak_ptr(self._seen[storage].cdata)
            if memory is not None:
                blank = torch.empty(0, dtype=view.dtype, device=memory.device)
                found[storage] = blank.set_(memory, view.offset, view.size, view.stride)
        return found

    def _note_argument(self, value: Any) -> Any:
        return self._view(value, new=False) if isinstance(value, torch.Tensor) else value

    def _note_result(self, value: Any) -> Any:
        return self._view(value, new=True) if isinstance(value, torch.Tensor) else value

    def _view(self, tensor: torch.Tensor, new: bool) -> View:
        if tensor.layout != torch.strided:
            raise GraphCaptureError(f"A tensor of layout {tensor.layout} cannot be captured.")
        reference = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
        storage = int(reference.cdata)
        offset = int(tensor.storage_offset())
        view = View(storage, offset, tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if storage not in self._seen:
            self._seen[storage] = reference
            if new:
                self.inside[storage] = view
        if storage not in self.inside and view not in self.outside:
            self.outside[view] = tensor.detach()
        return view


def _refuse_unreplayable(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """GraphCaptureError for operators that depend on values: a replay runs the same operators on other values."""
    if torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags:
        raise GraphCaptureError(f"{func} depends on the values of its input and cannot be captured.")
    for leaf in tree_leaves((args, kwargs)):
        if isinstance(leaf, torch.Generator):
            raise GraphCaptureError(f"{func} uses its own random generator and cannot be captured.")
