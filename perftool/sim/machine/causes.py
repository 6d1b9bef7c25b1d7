"""Counts, by script line, why graphs end, values are read, ops run on the CPU and graphs are recompiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perftool.sim.machine.graph import Node
from perftool.sim.machine.keys import Keys
from perftool.sim.own_stack import own_line

# The reasons that the bridge logs for a cut when the script reads tensor values.
_READS = frozenset({"local scalar", "d2h_maybe_eval"})
# In descending order of importance.
_CALLED = {
    "recompilation": "recompiled, ",
    "fallback": "on the CPU, ",
    "read": "read, ",
    "cut": "the graph ends, ",
}
KINDS = tuple(_CALLED)


@dataclass(frozen=True)
class Cause:
    """A cause that occurred ``count`` times at one ``line`` (``train.py:12 main``). ``kind`` is one of KINDS. It
    determines the meaning of ``what``: the argument change that caused a recompilation; the op that fell back, with its
    argument types; the kind of read; or the reason that the bridge logs for a cut.
    """

    kind: str
    what: str
    line: str
    count: int

    @property
    def text(self) -> str:
        """The cause as a line of text."""
        return f"{self.line}: {self.count} x {_CALLED[self.kind]}{self.what}"


class Causes:
    """Counts causes during a run."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._keys = Keys()

    @property
    def all(self) -> tuple[Cause, ...]:
        """All causes in the order of KINDS, with the most frequent of each kind first."""
        ordered = sorted(self._counts.items(), key=lambda item: (KINDS.index(item[0][0]), -item[1], item[0]))
        return tuple(Cause(*named, count) for named, count in ordered)

    def ended(self, reason: str) -> None:
        """Count a graph that ends for ``reason``, unless a read or fallback ends it: those are counted separately."""
        if reason not in _READS and not reason.startswith("cpu fallback"):
            self._count("cut", reason)

    def copied(self, reason: str | None) -> None:
        """Count a copy from device to host, unless it belongs to a fallback. ``reason`` is the bridge's reason for a
        cut, or None if nothing was pending."""
        if reason is None or reason in _READS:
            self._count("read", "a value on the host" if reason == "local scalar" else "a copy to the host")

    def fell_back(self, op: str, types: Mapping[str, str]) -> None:
        """Count an ``op`` that runs on the CPU."""
        self._count("fallback", " ".join([op, *(f"{name}={kind}" for name, kind in types.items())]))

    def compiled(self, nodes: Sequence[Node]) -> None:
        """Count the compilation of ``nodes`` as a recompilation, unless their sequence of ops is new."""
        difference = self._keys.add(nodes)
        if difference is not None:
            self._counts["recompilation", difference.what, difference.line] += 1

    def _count(self, kind: str, what: str) -> None:
        self._counts[kind, what, own_line()] += 1
