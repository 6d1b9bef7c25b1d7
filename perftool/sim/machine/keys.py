"""Describes ops and their arguments for the key of a recipe, and finds the difference between two keys."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from perftool.sim.machine.graph import Node

_ASPECTS = {"shape": "shape", "stride": "strides", "offset": "storage offset", "dtype": "type"}


class TensorPart(NamedTuple):
    """A tensor. ``origin`` is the graph's node that computes it, the number of the input, or ``host``."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: Hashable
    origin: Hashable


class NumberPart(NamedTuple):
    """A plain value, such as a number, a string or a dtype. ``kind`` distinguishes True, 1 and 1.0."""

    kind: str
    value: Hashable


@dataclass(frozen=True)
class Difference:
    """Why a graph needs a new recipe: ``what`` changed, at script ``line``, from a graph of the same ops."""

    what: str
    line: str


class Keys:
    """Remembers the latest graph of each sequence of ops, to compare keys."""

    def __init__(self) -> None:
        self._latest: dict[tuple[Hashable, ...], Sequence[Node]] = {}

    def add(self, nodes: Sequence[Node]) -> Difference | None:
        """Add a graph that has no recipe. Return the difference from the latest graph with the same ops, or None if
        this is the first such graph.
        """
        ops = tuple(node.name for node in nodes)
        before = self._latest.get(ops)
        self._latest[ops] = nodes
        if before is None:
            return None
        differing = ((old, new) for old, new in zip(before, nodes, strict=True) if old.key != new.key)
        old, new = next(differing)
        return Difference(_difference(old, new), new.line)


def _difference(old: Node, new: Node) -> str:
    """Describe how the first differing argument changed."""
    pairs = zip(new.names, old.parts, new.parts, strict=False)
    name, before, after = next((each for each in pairs if each[1] != each[2]), ("arguments", "", ""))
    return f"{new.name} {name}{_change(before, after)}"


def _change(before: Hashable, after: Hashable) -> str:
    if isinstance(before, TensorPart) and isinstance(after, TensorPart):
        aspect = next((each for each in _ASPECTS if getattr(before, each) != getattr(after, each)), None)
        if aspect is None:
            return ": a different tensor of the same shape and type"
        return f": {_ASPECTS[aspect]} {_shown(getattr(before, aspect))} to {_shown(getattr(after, aspect))}"
    if isinstance(before, NumberPart) and isinstance(after, NumberPart):
        return f": {before.value} to {after.value}"
    if isinstance(before, tuple) and isinstance(after, tuple):
        if len(before) != len(after):
            return f": {len(before)} to {len(after)} entries"
        pairs = zip(range(len(after)), before, after, strict=True)
        place, old, new = next(each for each in pairs if each[1] != each[2])
        return f"[{place}]{_change(old, new)}"
    return ": a different kind of argument"


def _shown(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value).removeprefix("torch.")
