"""Prefixes that launchers and Gaudi's logger put before lines."""

from __future__ import annotations

import tracemalloc

import pytest

from perftool.readers.logs.fallback_log import FallbackScanner
from perftool.readers.logs.runtime_log import runtime_scanners
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.log_lines import LogLine, Prefix, split_prefix
from perftool.readers.text.log_time import elapsed, parse_time, time_of_day

AT = 75_432_104_233_000  # 20:57:12.104233
DAY = 1_729_209_600 * 10**9  # 2024-10-18


@pytest.mark.parametrize(
    ("line", "prefix", "text"),
    [
        (
            "[20:57:12.104233][PT_FALLBACK        ][critical][tid:398E] CPU Fallback stats:",
            Prefix(None, AT, "critical", "PT_FALLBACK", "398E"),
            "CPU Fallback stats:",
        ),
        (
            "[13:29:57.521604][HABANA_NODE           ][error][tid:83EA] Output tensor and input",
            Prefix(None, 48_597_521_604_000, "error", "HABANA_NODE", "83EA"),
            "Output tensor and input",
        ),
        (
            "[2024-10-18 20:57:12.104233][PT_DEVMEM  ][W][tid:AB][hls:1][rank:5] mem.cpp:33\tDefragmentation",
            Prefix(5, DAY + AT, "w", "PT_DEVMEM", "AB"),
            "Defragmentation",
        ),
        ("[10-18 20:57:12::104233][R003][398e] old", Prefix(3, 88_214_400 * 10**9 + AT, None, None, "398E"), "old"),
        (
            "[20:57:12.104233][PT_FALLBACK ][\x1b[31mcritical\x1b[0m][tid:398E] red",
            Prefix(None, AT, "critical", "PT_FALLBACK", "398E"),
            "red",
        ),
        (
            "[20:57:12.104233][PT_HABHELPER][info ][tid:1] [CACHEFILE] Removed 7successfully.",
            Prefix(None, AT, "info", "PT_HABHELPER", "1"),
            "[CACHEFILE] Removed 7successfully.",
        ),
        ("[1,3]<stdout>:48\taten::nonzero", Prefix(3), "48\taten::nonzero"),
        ("[1,3]<stderr>: spaced", Prefix(3), "spaced"),
        ("Fri Oct 18 20:57:12 2024[1,2]<stdout>:x", Prefix(2), "x"),
        ("rank0: 12\taten::x", Prefix(0), "12\taten::x"),
        ("[rank1]: text", Prefix(1), "text"),
        ("[default2]:text", Prefix(2), "text"),
        (" 4: 12\taten::x", Prefix(4), "12\taten::x"),
        ("worker-1: 12\taten::x", Prefix(), "12\taten::x"),
        ("(RayTrainWorker pid=77, ip=10.0.0.1) text", Prefix(), "text"),
        ("2024-10-18T20:57:12.104233Z stderr F [rank6]: text", Prefix(6), "text"),
        ("[DETECT_RECOMPILE_AUTO][Net/1]step:0", Prefix(), "[DETECT_RECOMPILE_AUTO][Net/1]step:0"),
        ("2: not a label", Prefix(), "2: not a label"),
        ("note: not a host", Prefix(), "note: not a host"),
        ("[not a group] text", Prefix(), "[not a group] text"),
    ],
)
def test_prefix(line: str, prefix: Prefix, text: str) -> None:
    assert split_prefix(line) == (prefix, text)


@pytest.mark.parametrize(
    ("label", "process"),
    [
        ("(APIServer pid=7) INFO 11-23 20:57:12 [l.py:1] ", "pid=7"),
        ("vllm-1  | (APIServer pid=7) INFO 11-23 20:57:12 [l.py:1] ", "vllm-1 pid=7"),
        ("[pod/vllm-0/server] INFO 11-23 20:57:12 [l.py:1] ", "pod/vllm-0/server"),
        ("Nov 23 20:57:12 host vllm[123]: INFO 11-23 20:57:12 [l.py:1] ", "[123]"),
        ("2026-11-23T20:57:12.1Z INFO 11-23 20:57:12 [l.py:1] ", ""),
        ("[2026-11-23 20:57:12 DP1 TP0] ", "DP1"),
        ("[2026-11-23 20:57:12 TP0] ", ""),
        ("vllm-1  | [2026-11-23 20:57:12 DP1 TP0] ", "vllm-1 DP1"),
    ],
)
def test_the_process_of_a_server(label: str, process: str) -> None:
    assert split_prefix(f"{label}text of pid=8")[0].process == process
    assert split_prefix(f"{label}\x1b[1mtext\x1b[0m of pid=8")[0].process == process


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("2024-10-18T20:57:12.104233", DAY + AT),
        ("2024-10-18 20:57:12", DAY + 75_432 * 10**9),
        ("20:57:12.1", 75_432_100_000_000),
        ("2024-13-45 20:57:12.1", None),
        ("11-23 20:57:12", 91_324_800 * 10**9 + 75_432 * 10**9),
        ("13-45 20:57:12", None),
        ("yesterday", None),
    ],
)
def test_time(text: str, time_ns: int | None) -> None:
    assert parse_time(text) == time_ns


@pytest.mark.parametrize(
    ("earlier", "later", "seconds"),
    [
        ("02-28 23:59:55", "03-01 00:00:05", 10),
        ("02-28 23:59:55", "02-29 00:00:05", 10),
        ("02-29 23:59:55", "03-01 00:00:05", 10),
        ("12-31 23:59:55", "01-01 00:00:05", 10),
        ("01-01 00:00:05", "12-31 23:59:55", -10),
        ("12-31 00:00:00", "03-01 00:00:00", 60 * 86_400),
        ("2027-12-31 23:59:55", "2028-01-01 00:00:05", 10),
        ("2028-02-28 23:59:55", "2028-03-01 00:00:05", 86_410),
        ("23:59:55", "00:00:05", -86_390),
    ],
)
def test_lines_without_a_year_are_as_close_as_possible(earlier: str, later: str, seconds: int) -> None:
    before, after = parse_time(earlier), parse_time(later)
    assert before is not None
    assert after is not None
    assert elapsed(before, after) == seconds * 10**9


def test_time_of_day_ignores_the_date() -> None:
    assert time_of_day(DAY + AT) == AT


def test_the_texts_of_long_lines_are_not_kept() -> None:
    """300 lines of 1 MiB took 1.4 GB, and a cache of 4,096 lines could have taken 16 GB."""
    tally = IssueTally()
    scanners = (*runtime_scanners(tally), FallbackScanner(tally))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(40):
            known = (
                "Removed {} successfully 'loss': ",
                "CPU fallback aten::b{} : x",
                "CPU Fallback stats: {}",
                "b{} 1%|# | 1/9 [00:01<00:09, 1.0it/s]",
            )
            text = known[number % 4].format(number) + " " + "\U0001f600" * 100_000
            for scanner in scanners:
                scanner.feed(LogLine(number, text))
        text = ""
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 2_000_000
