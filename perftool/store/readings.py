"""What logs, metrics and configuration say, as rows beside those of the traces."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perftool.model.hpu_ops import is_registered, unsupported
from perftool.model.inputs import InputFile
from perftool.model.records import CapturedKernel, LogReading
from perftool.readers.files.remote import local_copy
from perftool.readers.files.stream import STDIN
from perftool.readers.logs.compilation_choice import chosen_compilations
from perftool.readers.logs.fallback_totals import FallbackTotal, fallback_totals


@dataclass(frozen=True)
class Reading:
    """One text input and what its reader made of it."""

    path: str
    size: int
    reading: LogReading

    def as_input(self) -> InputFile:
        """The input as the report lists it."""
        reading = self.reading
        ranks = reading.ranks
        return InputFile(
            path=self.path,
            kind=reading.kind or "runtime_log",
            rank=ranks[0] if len(ranks) == 1 else None,
            bytes=self.size,
            events=reading.records,
            status="repaired" if reading.issues else "ok",
            issues=reading.issues,
        )


def read_text(path: str) -> Reading:
    """Read a log, a metrics file or a configuration. Raises InputError when it cannot be read."""
    # The readers of text bring tables of patterns that a trace alone does not need.
    from perftool.readers.text import text_input

    shown = "<stdin>" if path == STDIN else path
    size = 0 if path == STDIN or not os.path.exists(path) else os.path.getsize(path)
    with local_copy(path) as place:
        return Reading(shown, size, text_input.read(place))


def reading_tables(readings: Sequence[Reading]) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each table that readings fill."""
    parts = [part.reading for part in readings]
    totals = fallback_totals(parts)
    return {
        "_log_fallbacks": [
            (t.op, t.base, _dtypes(t.dtypes), t.count, "+".join(t.origins), is_registered(t.op)) for t in totals
        ],
        "unsupported_dtypes": _missing_dtypes(totals),
        # Inputs that would tell of fallbacks: with one of them, none means none.
        "_log_fallback_sources": [(r.path,) for r in readings if _would_show_fallbacks(r.reading)],
        "_captured": captured_rows([kernel for part in parts for kernel in part.captured]),
        "_log_compilations": [
            (c.rank, c.step, c.recipe, c.reason, "metrics" if c.source == "metrics" else "log", share)
            for c in chosen_compilations(parts)
            for share in [c.dur_ns and c.dur_ns // c.count]
            for _ in range(min(c.count, _MOST_ROWS))
        ],
        "config": [(e.source, e.key, e.value, e.rank, r.path) for r in readings for e in r.reading.config],
        "log_events": [
            (e.kind, e.name, e.count, e.value, e.limit, e.unit, e.rank, r.path, e.line)
            for r in readings
            for e in r.reading.events
        ],
        "flight_groups": [
            (g.rank, g.group, g.description, list(g.members) or None, g.called, g.completed, r.path)
            for r in readings
            for g in r.reading.flight_groups
        ],
        "flight_entries": [
            (e.rank, e.group, e.number, e.name, e.state, e.sizes, e.created_ns, e.place)
            for part in parts
            for e in part.flight
        ],
        "metrics": [
            (s.metric, s.ordinal, v.key, v.name, v.total, v.increment, v.unit, s.trigger, s.rank, r.path)
            for r in readings
            for s in r.reading.metrics
            for v in s.values
        ],
    }


def captured_rows(kernels: Sequence[CapturedKernel]) -> list[tuple[Any, ...]]:
    """Each kernel with its number among those of its name, and how many these are."""
    times, seen = Counter(one.kernel for one in kernels), Counter[str]()
    rows = []
    for one in kernels:
        seen[one.kernel] += 1
        call = (one.op, one.op_name, one.input_dims, one.input_types, one.concrete_inputs)
        rows.append((one.kernel, seen[one.kernel], times[one.kernel], *call))
    return rows


# A record of many compilations becomes that many rows, up to this.
_MOST_ROWS = 10_000


def _dtypes(combinations: Sequence[Sequence[str]]) -> str | None:
    return "; ".join(", ".join(dtypes) for dtypes in combinations) or None


def _missing_dtypes(totals: Sequence[FallbackTotal]) -> list[tuple[Any, ...]]:
    rows = []
    for total in totals:
        seen = frozenset(dtype for combination in total.dtypes for dtype in combination)
        missing, supported = unsupported(total.op, total.base, seen)
        if missing:
            rows.append((total.op, total.base, ", ".join(sorted(missing)), ", ".join(sorted(supported)) or None))
    return rows


def _would_show_fallbacks(reading: LogReading) -> bool:
    return bool(reading.fallbacks) or any(snapshot.metric == "cpu_fallback" for snapshot in reading.metrics)
