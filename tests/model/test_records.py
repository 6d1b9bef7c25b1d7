"""The bundle of records that readers return."""

from __future__ import annotations

from perftool.model.inputs import ImportIssue
from perftool.model.records import ConfigEntry, FallbackRecord, LogEvent, LogReading, combine

FALLBACK = FallbackRecord("aten::a.out", "aten::a", 1, "table", rank=2)
EVENT = LogEvent("graph_cut", "nms", rank=0)
ENTRY = ConfigEntry("banner", "PT_HPU_LAZY_MODE", "1")
ISSUE = ImportIssue("cut line", 1, "text")


def test_combine_keeps_every_record_in_order() -> None:
    first = LogReading(fallbacks=(FALLBACK,), issues=(ISSUE,), kind="fallback_log")
    second = LogReading(events=(EVENT,), config=(ENTRY,), fallbacks=(FALLBACK,))
    assert combine([first, second], kind="runtime_log") == LogReading(
        fallbacks=(FALLBACK, FALLBACK), events=(EVENT,), config=(ENTRY,), issues=(ISSUE,), kind="runtime_log"
    )


def test_ranks_and_number_of_records() -> None:
    reading = LogReading(fallbacks=(FALLBACK,), events=(EVENT,), config=(ENTRY,), issues=(ISSUE,))
    assert reading.ranks == (0, 2)
    assert reading.records == 3
