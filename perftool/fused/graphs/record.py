"""Records the operators that a region of a program runs below autograd; a replay runs them again in the same order.

Tensors are identified by storage and geometry, because autograd creates new tensor objects for saved memory.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from perftool.errors import PerfToolError


class GraphCaptureError(PerfToolError):
    """A captured region contains something that cannot be replayed; the message says what."""


@dataclass(frozen=True)
class View:
    """A tensor's location in memory. `storage` identifies memory within one recording; the offset is in elements."""

    storage: int
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


class Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs operators and records them. `operands` is the memory that a replay reads and writes: memory that existed
    before the recording, and memory allocated during it and still in use at the end. A replay frees all other memory.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operands: list[Tensor] = []
        self._owner, self._graph = torch.nn.Module(), fx.Graph()
        self._nodes: dict[View, fx.Node] = {}
        # The first view of each piece of memory allocated while recording, from which its other views are made.
        self._inside: dict[int, View] = {}
        # Weak references distinguish freed memory from new memory at the same address.
        self._seen: dict[int, StorageWeakRef] = {}

    def begin(self) -> None:
        """Start recording."""
        self.__enter__()  # type: ignore[no-untyped-call]

    def abandon(self) -> None:
        """Stop recording."""
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def end(self) -> None:
        """Stop recording and prepare the replay. Call it after the temporaries of the region are freed."""
        self.abandon()
        for storage, view in self._inside.items():
            memory = torch.UntypedStorage._new_with_weak_ptr(self._seen[storage].cdata)
            if memory is not None:
                blank = torch.empty(0, dtype=view.dtype, device=memory.device)
                target = self._operand(blank.set_(memory, view.offset, view.size, view.stride))
                self._graph.call_function(torch.ops.aten.copy_.default, (target, self._nodes[view]))
        self._graph.output(())
        self._module = fx.GraphModule(self._owner, self._graph)

    def replay(self) -> None:
        """Run the operators once on the current contents of the memory."""
        with torch.no_grad():
            self._module()

    def reads(self, tensor: Tensor) -> bool:
        """Whether the memory of a tensor is one of the operands."""
        return any(operand.data_ptr() == tensor.data_ptr() for operand in self.operands)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the call and record it."""
        kwargs = kwargs or {}
        if func.namespace == "profiler":
            return func(*args, **kwargs)
        _refuse_unreplayable(func, args, kwargs)
        operands = tree_map_only(Tensor, self._node, (args, kwargs))
        results = func(*args, **kwargs)
        self._name(self._graph.call_function(func, *operands), results)
        return results

    def _operand(self, tensor: Tensor) -> fx.Node:
        self.operands.append(tensor)
        name = f"memory{len(self.operands)}"
        self._owner.register_buffer(name, tensor)
        return self._graph.get_attr(name)

    def _node(self, tensor: Tensor) -> fx.Node:
        """Return the node of an argument. If no operator returned this view, derive the node from the first view of the
        same memory."""
        view, reference = _view(tensor)
        self._seen.setdefault(view.storage, reference)
        if view not in self._nodes and view.storage in self._inside:
            base = self._nodes[self._inside[view.storage]]
            place = base, view.size, view.stride, view.offset
            self._nodes[view] = self._graph.call_function(torch.ops.aten.as_strided.default, place)
        elif view not in self._nodes:
            self._nodes[view] = self._operand(tensor.detach())
        return self._nodes[view]

    def _name(self, node: fx.Node, results: Any) -> None:
        """Map each view that is a result of a call to ``node``, the node of the call. If the call has several results,
        map each to a node that selects it. In-place results already have a node."""
        if isinstance(results, Tensor):
            view, reference = _view(results)
            self._nodes.setdefault(view, node)
            if view.storage not in self._seen:
                self._seen[view.storage], self._inside[view.storage] = reference, view
        elif isinstance(results, (list, tuple)):
            for index, part in enumerate(results):
                if part is not None:
                    self._name(self._graph.call_function(operator.getitem, (node, index)), part)


def _view(tensor: Tensor) -> tuple[View, StorageWeakRef]:
    if tensor.layout != torch.strided:
        raise GraphCaptureError(f"A tensor with layout {tensor.layout} cannot be captured.")
    reference = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
    place = int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride(), tensor.dtype
    return View(int(reference.cdata), *place), reference


def _refuse_unreplayable(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise GraphCaptureError for operators that depend on values, because a replay runs the same operators on other
    values."""
    if torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags:
        raise GraphCaptureError(f"{func} depends on the values of its input and cannot be captured.")
    for leaf in tree_leaves((args, kwargs)):
        if isinstance(leaf, torch.Generator):
            raise GraphCaptureError(f"{func} uses its own random generator and cannot be captured.")
