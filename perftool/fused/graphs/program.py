"""A recording turned into a static program over fixed memory, compiled by inductor.

The program's inputs are the memory blocks it reads and writes: those that existed before the recording, and
those allocated in it that are still held. A replay is one call; it returns nothing and updates this memory.
"""

from __future__ import annotations

import operator
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map

from perftool.fused.graphs.record import Call, GraphCaptureError, Recorder, View
from perftool.fused.graphs.substitutes import substitute


def compiler_obstacle() -> str | None:
    """None when inductor can build code for the CPU here, else the reason why not."""
    wanted = [os.environ["CXX"]] if "CXX" in os.environ else ["g++", "clang++"]
    if any(shutil.which(name) for name in wanted):
        return None
    return f"inductor needs a C++ compiler and finds none of {', '.join(wanted)}"


@dataclass
class StaticProgram:
    """Operators over `operands`, the memory they read and write, in the order of the module's inputs."""

    module: fx.GraphModule
    operands: list[torch.Tensor]
    compile_seconds: float = 0.0
    fallback_reason: str | None = None
    _run: Callable[..., Any] | None = field(default=None, repr=False)

    def compile(self) -> None:
        """Build machine code with inductor; RuntimeError from its stack when that fails."""
        from torch._inductor.compile_fx import compile_fx

        started = time.perf_counter()
        with torch.no_grad():
            compiled: Any = compile_fx(self.module, self._stand_ins())
        self._run = compiled
        self.compile_seconds = time.perf_counter() - started

    def interpret(self, reason: str) -> None:
        """Replay operator by operator instead: correct, and not faster than the original."""
        self._run, self.fallback_reason = self.module, reason

    @property
    def ready(self) -> bool:
        """True once `compile` or `interpret` has been called."""
        return self._run is not None

    def run(self) -> None:
        """Execute once on the memory as it is now."""
        if self._run is None:
            raise GraphCaptureError("The captured program was neither compiled nor set to be interpreted.")
        with torch.no_grad():
            self._run(*self.operands)

    def _stand_ins(self) -> list[torch.Tensor]:
        """Tensors without memory, laid out like the operands; apart, so none is taken for an alias."""
        with torch._subclasses.FakeTensorMode():
            return [
                torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device)
                for tensor in self.operands
            ]


def build_program(recorder: Recorder) -> StaticProgram:
    """The static program of a finished recording; call it when temporaries of the region are gone."""
    return _Builder(recorder).build()


class _Builder:
    """Translates calls to nodes; keeps for each View the node that stands for it."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.graph = fx.Graph()
        self.nodes: dict[View, fx.Node] = {}
        self.bases: dict[int, fx.Node] = {}
        self.operands: list[torch.Tensor] = []

    def build(self) -> StaticProgram:
        survivors = self.recorder.surviving()
        for storage, views in self._entry_views().items():
            self._add_outside(storage, views)
        targets = {storage: self._placeholder(tensor) for storage, tensor in survivors.items()}
        for call in self.recorder.calls:
            self._add_call(call)
        for storage, target in targets.items():
            value = self._node(self.recorder.inside[storage])
            self.graph.call_function(torch.ops.aten.copy_.default, (target, value))
        self.graph.output(())
        return StaticProgram(fx.GraphModule(torch.nn.Module(), self.graph), self.operands)

    def _entry_views(self) -> dict[int, list[View]]:
        """For each storage from outside, the views through which the program first reaches it."""
        made: set[View] = set()
        entries: dict[int, dict[View, None]] = defaultdict(dict)
        for call in self.recorder.calls:
            for view in call.views():
                if view in self.recorder.outside and view not in made:
                    entries[view.storage][view] = None
            made.update(leaf for leaf in tree_leaves(call.results) if isinstance(leaf, View))
        return {storage: list(views) for storage, views in entries.items()}

    def _add_outside(self, storage: int, views: list[View]) -> None:
        """One input for each separate view, or one for the whole memory where views overlap."""
        tensors = [self.recorder.outside[view] for view in views]
        if _disjoint(views):
            for view, tensor in zip(views, tensors, strict=True):
                self.nodes[view] = self._placeholder(tensor)
            return
        if len({view.dtype for view in views}) > 1:
            raise GraphCaptureError("A captured region views the same memory in two dtypes.")
        memory = tensors[0].untyped_storage()
        elements = memory.nbytes() // tensors[0].element_size()
        whole = torch.empty(0, dtype=tensors[0].dtype, device=memory.device).set_(memory, 0, (elements,), (1,))
        self.bases[storage] = self._placeholder(whole)

    def _placeholder(self, tensor: torch.Tensor) -> fx.Node:
        self.operands.append(tensor)
        return self.graph.placeholder(f"memory{len(self.operands)}")

    def _add_call(self, call: Call) -> None:
        args, kwargs = tree_map(self._argument, (call.args, call.kwargs))
        self._name(self.graph.call_function(substitute(call.op), args, kwargs), call.results)

    def _argument(self, value: Any) -> Any:
        return self._node(value) if isinstance(value, View) else value

    def _name(self, node: fx.Node, results: Any) -> None:
        """Let the node, or its parts, stand for the views a call returned; in-place results are known."""
        if isinstance(results, View):
            self.nodes.setdefault(results, node)
            self.bases.setdefault(results.storage, node)
        elif isinstance(results, (list, tuple)):
            for index, part in enumerate(results):
                if part is not None:
                    self._name(self.graph.call_function(operator.getitem, (node, index)), part)

    def _node(self, view: View) -> fx.Node:
        """The node of a view; one made outside the operators' sight is taken from its memory's base."""
        if view not in self.nodes:
            if view.storage not in self.bases:
                raise GraphCaptureError("A captured region uses memory of unknown origin.")
            self.nodes[view] = self.graph.call_function(
                torch.ops.aten.as_strided.default,
                (self.bases[view.storage], view.size, view.stride, view.offset),
            )
        return self.nodes[view]


def _disjoint(views: list[View]) -> bool:
    if len(views) == 1:
        return True
    if len({view.dtype for view in views}) > 1:
        return False
    extents = sorted((view.extent().start, view.extent().stop) for view in views)
    return all(left[1] <= right[0] for left, right in pairwise(extents))
