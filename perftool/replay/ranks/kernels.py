"""Explains why kernels take longer on late ranks: they run slower, process more data, or there are more of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perftool.store.trace_store import TraceStore

# The durations of kernels that do the same work differ by one or two percent between ranks.
_NOTICED = 1.02
# If kernels with at least this share of the time are slower by about the same factor, the report says that all kernels
# are slower, as they would be at a lower clock speed.
_MOST, _ALIKE = 0.8, 0.05
# A kernel is named if it accounts for more than this share of the difference.
_NAMED = 0.5
_LONGEST_NAME = 60
_BY_SAME_FACTOR = ", all by the same factor"
_TOTALS = """
SELECT d.rank, d.name, sum(d.count) / greatest(min(w.steps), 1) AS times,
       sum(d.total_ns) / greatest(min(w.steps), 1) AS ns
FROM _device_op_totals AS d JOIN windows AS w USING (rank)
WHERE NOT EXISTS (FROM _vocabulary AS v WHERE v.subject IN ('kernel', 'memcpy') AND lower(d.name) GLOB v.pattern
                  AND v.role IN ('collective', 'wait', 'host_to_device', 'device_to_host'))
GROUP BY d.rank, d.name ORDER BY d.rank, d.name
"""


# The bytes that the ops of each rank read and write per step, if the shapes of most of the work are known.
_SIZES = """
SELECT rank, e.sized_bytes / greatest(w.steps, 1) AS bytes FROM _efficiency_totals AS e JOIN windows AS w USING (rank)
WHERE e.sized_bytes > 0 AND e.sized_ns >= 0.5 * e.work_ns
"""


@dataclass(frozen=True)
class Slowdown:
    """Why kernels take longer. ``kind`` is ``more`` if there are more kernels. For the same number of kernels, it is
    ``slower`` (each takes longer), ``larger`` (each takes longer because of larger inputs) or ``unsized`` (no shapes
    were recorded, so larger inputs may be the reason). ``words`` is a clause that says which.
    """

    kind: str
    words: str


def slowdown_of(store: TraceStore, late: Sequence[int], ranks: Sequence[int]) -> Slowdown | None:
    """Return how the kernels of ``late`` differ from those of the other ``ranks``, or None if no kind applies."""
    known: dict[int, dict[str, tuple[float, float]]] = {}
    for row in store.select(_TOTALS):
        known.setdefault(row["rank"], {})[row["name"]] = (row["times"], row["ns"])
    mine = [known[rank] for rank in late if rank in known]
    rest = [known[rank] for rank in ranks if rank in known and rank not in late]
    if not mine or not rest:
        return None
    own = [np.mean([_sum(kernels, at) for kernels in mine]) for at in (0, 1)]
    usual = [np.median([_sum(kernels, at) for kernels in rest]) for at in (0, 1)]
    times = float(own[0] / max(1.0, usual[0]))
    length = float(own[1] / max(1.0, own[0]) / max(1.0, usual[1] / max(1.0, usual[0])))
    if times > _NOTICED and times > length:
        return Slowdown("more", f"{times:.2f} times as many kernels")
    if length > _NOTICED and abs(times - 1) < _NOTICED - 1:
        size = _size_ratio(store, late, ranks)
        if size is not None and np.log(size) > 0.5 * np.log(length):
            return Slowdown("larger", f"the same number of kernels, on {size:.2f} times as much data")
        where = _where(_mean(mine), _median(rest), length)
        # Larger inputs slow down some kernels more than others; a lower clock affects all kernels alike.
        unsized = size is None and where != _BY_SAME_FACTOR
        words = f"the same number of kernels, each {length:.2f} times as long{where}"
        return Slowdown("unsized" if unsized else "slower", words)
    return None


def _size_ratio(store: TraceStore, late: Sequence[int], ranks: Sequence[int]) -> float | None:
    """Return the ratio of the data that the kernels of ``late`` and of the other ``ranks`` process, or None if
    unknown.
    """
    sizes = {row["rank"]: row["bytes"] for row in store.select(_SIZES)}
    mine = [sizes[rank] for rank in late if rank in sizes]
    rest = [sizes[rank] for rank in ranks if rank in sizes and rank not in late]
    return float(np.mean(mine) / np.median(rest)) if len(mine) == len(late) and rest else None


def _where(mine: Mapping[str, float], usual: Mapping[str, float], length: float) -> str:
    """Return a clause that says that all kernels are slower by the same factor, or names the kernel that accounts for
    most of the difference. It may be empty."""
    both = {name: (mine[name], usual[name]) for name in mine if usual.get(name, 0) > 0}
    whole = sum(ns for _, ns in both.values())
    alike = sum(ns for own, ns in both.values() if abs(own / ns - length) <= _ALIKE * length)
    if len(both) > 1 and alike >= _MOST * whole:
        return _BY_SAME_FACTOR
    most = max(both, key=lambda name: (both[name][0] - both[name][1], name), default=None)
    more = sum(own - ns for own, ns in both.values())
    if most is None or both[most][0] - both[most][1] <= _NAMED * more:
        return ""
    name = most if len(most) <= _LONGEST_NAME else f"{most[: _LONGEST_NAME - 1]}…"
    return f", mostly in {name}"


def _sum(kernels: Mapping[str, tuple[float, float]], at: int) -> float:
    return sum(counted[at] for counted in kernels.values())


def _mean(many: Sequence[Mapping[str, tuple[float, float]]]) -> dict[str, float]:
    return _by_name(many, np.mean)


def _median(many: Sequence[Mapping[str, tuple[float, float]]]) -> dict[str, float]:
    return _by_name(many, np.median)


def _by_name(many: Sequence[Mapping[str, tuple[float, float]]], summed: object) -> dict[str, float]:
    """Return the times of each kernel on several ranks, combined by ``summed``."""
    assert callable(summed)
    names = {name for kernels in many for name in kernels}
    return {name: float(summed([kernels.get(name, (0, 0))[1] for kernels in many])) for name in names}
