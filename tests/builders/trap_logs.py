"""Damaged and awkward logs and metrics files, each with the counts a reader must find in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from builders.fallback_logs import per_call, table_f1, table_f2, table_f3, table_f4
from builders.metrics_files import Snapshot, json_file
from builders.runtime_logs import eviction

_COUNTS = {"aten::nonzero": 48, "aten::index.Tensor_out": 12, "aten::digamma": 1}


@dataclass(frozen=True)
class LogFacts:
    """Calls per op and overload, ids of evicted recipes, and the compilations in the last complete record."""

    fallbacks: Mapping[str, int] = field(default_factory=dict)
    evicted: tuple[str, ...] = ()
    compilations: int | None = None
    dropped_records: int = 0


LogTrap = tuple[bytes, LogFacts]


def every_table_shape() -> list[LogTrap]:
    """The same counts in the formats F1 to F4."""
    facts = LogFacts(_COUNTS)
    return [(shape(_COUNTS).encode(), facts) for shape in (table_f1, table_f2, table_f3, table_f4)]


def calls_and_table() -> LogTrap:
    """The lines per call and the table at exit report the same calls, which must count once."""
    calls = (per_call("digamma", self="HPUBFloat16Type") + "\n") * 2
    return (calls + table_f1({"aten::digamma": 2})).encode(), LogFacts({"aten::digamma": 2})


def calls_without_table() -> LogTrap:
    """A killed process prints no table, only the lines per call."""
    return ((per_call("digamma", self="HPUBFloat16Type") + "\n") * 3).encode(), LogFacts({"aten::digamma": 3})


def duplicated_table() -> LogTrap:
    """A console log and a file log in one file, so that the same record with the same time stamp appears twice."""
    return (table_f4(_COUNTS) * 2).encode(), LogFacts(_COUNTS)


def interleaved_ranks() -> LogTrap:
    """Two ranks print their tables to one console, line by line, each with a launcher's prefix."""
    lines = table_f4({"aten::nonzero": 5, "aten::digamma": 2}).splitlines()
    others = table_f4({"aten::nonzero": 7, "aten::digamma": 1}).splitlines()
    text = ""
    for first, second in zip(lines, others, strict=True):
        text += f"[1,0]<stdout>:{first}\n[1,1]<stdout>:{second}\n"
    return text.encode(), LogFacts({"aten::nonzero": 12, "aten::digamma": 3})


def coloured_windows_console() -> LogTrap:
    """ANSI colours around the level, carriage returns, and a byte before the table that is not UTF-8."""
    text = table_f4(_COUNTS).replace("[critical]", "[\x1b[1m\x1b[31mcritical\x1b[0m]")
    return b"caf\xe9 started\r\n" + text.replace("\n", "\r\n").encode(), LogFacts(_COUNTS)


def wide_encoding() -> LogTrap:
    """A log from a shell that redirects output as UTF-16 with a byte order mark."""
    return table_f4(_COUNTS).encode("utf-16"), LogFacts(_COUNTS)


def evictions() -> LogTrap:
    """Two evictions: one as release 1.19 logs it, without a space between the recipe's number and "success", and one as
    documented, with the space.
    """
    spaced = eviction(9002, 900_000).replace("9002success", "9002 success")
    return (eviction(9001, 1_000_000) + spaced).encode(), LogFacts(evicted=("9001", "9002"))


def half_written_metrics() -> LogTrap:
    """Cumulative records of a killed process. The last record is truncated, and the closing bracket is missing."""
    first = Snapshot("mark_step", "2024-10-18T20:56:53.275114", (("r_0", 900),), {"aten::nonzero": 1})
    second = Snapshot("mark_step", "2024-10-18T20:56:54.275114", (("r_0", 900), ("r_1", 800)), {"aten::nonzero": 3})
    text = json_file([first, second], closed=False)
    cut = text.rindex('"TotalSuccessful"') - 5
    return text[:cut].encode(), LogFacts({"aten::nonzero": 3}, compilations=2, dropped_records=1)
