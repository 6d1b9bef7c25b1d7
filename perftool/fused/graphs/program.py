"""A recording as a program over fixed memory: a replay runs the recorded operators again, in order."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map

from perftool.fused.graphs.record import Call, GraphCaptureError, Recorder, View


class Program:
    """The operators of a finished recording; create it after the temporaries of the region are freed. `operands` is the
    memory that a replay reads and writes: memory that existed before the recording, and memory allocated in it and
    still held. Everything else lives only as long as the replay needs it.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._graph = fx.Graph()
        self._nodes: dict[View, fx.Node] = {}
        self._bases: dict[int, fx.Node] = {}
        self.operands: list[torch.Tensor] = []
        for view in dict.fromkeys(view for call in recorder.calls for view in call.views()):
            if view in recorder.outside:
                self._nodes[view] = self._placeholder(recorder.outside[view])
        survivors = recorder.surviving()
        targets = {storage: self._placeholder(tensor) for storage, tensor in survivors.items()}
        for call in recorder.calls:
            self._add_call(call)
        for storage, target in targets.items():
            value = self._node(recorder.inside[storage])
            self._graph.call_function(torch.ops.aten.copy_.default, (target, value))
        self._graph.output(())
        self._module = fx.GraphModule(torch.nn.Module(), self._graph)

    def run(self) -> None:
        """Execute once on the current contents of the memory."""
        with torch.no_grad():
            self._module(*self.operands)

    def _placeholder(self, tensor: torch.Tensor) -> fx.Node:
        self.operands.append(tensor)
        return self._graph.placeholder(f"memory{len(self.operands)}")

    def _add_call(self, call: Call) -> None:
        args, kwargs = tree_map(lambda value: self._node(value) if isinstance(value, View) else value,
                                (call.args, call.kwargs))  # fmt: skip
        self._name(self._graph.call_function(call.op, args, kwargs), call.results)

    def _name(self, node: fx.Node, results: Any) -> None:
        """Map the views that a call returned to the node, or its parts; in-place results are known already."""
        if isinstance(results, View):
            self._nodes.setdefault(results, node)
            self._bases.setdefault(results.storage, node)
        elif isinstance(results, (list, tuple)):
            for index, part in enumerate(results):
                if part is not None:
                    self._name(self._graph.call_function(operator.getitem, (node, index)), part)

    def _node(self, view: View) -> fx.Node:
        """The node of a view; one that no operator returned is made from the first view of its memory."""
        if view not in self._nodes:
            if view.storage not in self._bases:
                raise GraphCaptureError("A captured region uses memory of unknown origin.")
            place = view.size, view.stride, view.offset
            base = self._bases[view.storage]
            self._nodes[view] = self._graph.call_function(torch.ops.aten.as_strided.default, (base, *place))
        return self._nodes[view]
