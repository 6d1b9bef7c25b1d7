"""Reads compilations that a log reports line by line.

There are three sources: the recipe cache logs each recipe that it stores, ``PT_HPU_PRINT_STATS`` prints running totals,
and ``detect_recompilation_auto_model`` prints one line per call to each module. From the third source, only lines with
a step are used. They are about the outermost module, and their number of graphs includes those of its submodules.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from perftool.model.records import CompilationRecord, LogReading
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.log_lines import LogLine

CORES = ("adding new recipe to cache", "recipe compilation time", "[DETECT_RECOMPILE_AUTO]")
_NEW_RECIPE = re.compile(r"adding new recipe to cache :: ?(?P<recipe>\S+)")
_STATS = re.compile(r"\|\s*last \d{1,18} \[ns\]\s*\|\s*sum (?P<sum>\d{1,18}) \[ns\]\s*\|\s*count (?P<count>\d{1,18})")
_DETECTED = re.compile(r"\]step:(?P<step>\d{1,18})\b(?P<why>.{0,400}?)num_graphs:(?P<count>\d{1,18})")


_Take = Callable[[LogLine, re.Match[str]], None]


@dataclass(frozen=True, slots=True)
class _Total:
    count: int
    sum_ns: int


class CompilationScanner:
    """Collects compilations from the lines of a log, fed in order."""

    def __init__(self, tally: IssueTally) -> None:
        self._tally = tally
        self._records: list[CompilationRecord] = []
        self._totals: dict[int | None, _Total] = {}
        patterns = (_NEW_RECIPE, _STATS, _DETECTED)
        takers: tuple[_Take, ...] = (self._new_recipe, self._stats, self._detected)
        self._rows = tuple(zip(CORES, patterns, takers, strict=True))

    def feed(self, line: LogLine) -> None:
        """Keep the compilation that ``line`` reports, if any."""
        for core, pattern, take in self._rows:
            if core in line.text and (match := pattern.search(line.text)):
                take(line, match)

    def reading(self) -> LogReading:
        """Return all compilations read so far."""
        return LogReading(compilations=tuple(self._records), kind="runtime_log")

    def _add(self, record: CompilationRecord) -> None:
        if self._tally.has_room(len(self._records), "compilations", record.line):
            self._records.append(record)

    def _new_recipe(self, line: LogLine, match: re.Match[str]) -> None:
        ordinal = len(self._records)
        self._add(
            CompilationRecord("recipe_cache", recipe=match["recipe"], ordinal=ordinal, rank=line.rank, line=line.number)
        )

    def _stats(self, line: LogLine, match: re.Match[str]) -> None:
        """Add the increase since the previous line, because the totals are cumulative."""
        total = _Total(int(match["count"]), int(match["sum"]))
        before = self._totals.get(line.rank, _Total(0, 0))
        if total.count < before.count:
            before = _Total(0, 0)
        self._totals[line.rank] = total
        if total.count > before.count:
            self._add(
                CompilationRecord(
                    "print_stats",
                    count=total.count - before.count,
                    dur_ns=max(total.sum_ns - before.sum_ns, 0),
                    ordinal=len(self._records),
                    rank=line.rank,
                    line=line.number,
                )
            )

    def _detected(self, line: LogLine, match: re.Match[str]) -> None:
        if count := int(match["count"]):
            self._add(
                CompilationRecord(
                    "detect_recompilation",
                    count=count,
                    ordinal=len(self._records),
                    step=int(match["step"]),
                    reason="new shapes" if "new input signature" in match["why"] else "same shapes",
                    rank=line.rank,
                    line=line.number,
                )
            )
