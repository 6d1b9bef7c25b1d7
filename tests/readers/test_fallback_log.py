"""Fallback tables in all formats, lines about calls, and logs that mix or repeat them."""

from __future__ import annotations

import time

import pytest
from scanning import read_fallbacks

from perftool.model.inputs import ImportIssue
from perftool.model.records import FallbackRecord

AT = 75_432_104_233_000
HEADER = "[20:57:12.104233][PT_FALLBACK        ][critical][tid:398E] CPU Fallback stats:"


def counts(text: str | bytes, rank: int | None = None) -> list[tuple[int | None, str, int]]:
    """Return the (rank, op, count) of each table row in ``text``."""
    content = text.encode() if isinstance(text, str) else text
    records = read_fallbacks(content, rank).fallbacks
    return [(record.rank, record.op, record.count) for record in records if record.origin == "table"]


def issues(text: str) -> dict[str, int]:
    return {issue.kind: issue.count for issue in read_fallbacks(text.encode()).issues}


def test_call_line_and_first_table_format() -> None:
    text = (
        "CPU fallback digamma : self=HPUBFloat16Type\n"
        "Frequency of op and op name that were executed on CPU:\n"
        "1       aten::digamma\n"
    )
    assert read_fallbacks(text.encode()).fallbacks == (
        FallbackRecord("aten::digamma", "aten::digamma", 1, "table", table=0, line=2),
        FallbackRecord(
            "aten::digamma",
            "aten::digamma",
            1,
            "call",
            dtypes=("bfloat16",),
            detail="self=HPUBFloat16Type",
            line=1,
        ),
    )


def test_newest_format_keeps_the_overload_apart() -> None:
    text = f"{HEADER}\n48\taten::nonzero\n12\taten::index.Tensor_out\n"
    where = {"origin": "table", "table": 0, "line": 1, "time_ns": AT, "tid": "398E"}
    assert read_fallbacks(text.encode()).fallbacks == (
        FallbackRecord("aten::nonzero", "aten::nonzero", 48, **where),
        FallbackRecord("aten::index.Tensor_out", "aten::index", 12, **where),
    )


@pytest.mark.parametrize(
    "header",
    [
        "Frequency of op and op name that were executed on CPU:",
        "Frequency of op and op name that were executed on CPU: "
        "(Set env var PT_HABANA_LOG_TYPE_MASK=0 to disable this print)",
        "Frequency of op and op name that were executed on CPU:\n"
        "(Set env var PT_HPU_LOG_TYPE_MASK=0 to disable this print)",
        HEADER,
        f"some text before [x] {HEADER}",
    ],
    ids=["first", "hint on the line", "hint on the next line", "newest", "text before"],
)
def test_every_header(header: str) -> None:
    assert counts(f"{header}\n3\taten::digamma\n1\taten::index.Tensor_out\nclosing\n") == [
        (None, "aten::digamma", 3),
        (None, "aten::index.Tensor_out", 1),
    ]


TABLE = f"{HEADER}\n48\taten::nonzero\n1\taten::digamma\n"
EXPECTED = [(None, "aten::nonzero", 48), (None, "aten::digamma", 1)]


@pytest.mark.parametrize(
    "content",
    [
        TABLE.encode(),
        TABLE.replace("\n", "\r\n").encode(),
        TABLE.encode("utf-16"),
        TABLE.encode("utf-8-sig"),
        ("caf\xe9\n" + TABLE).encode("latin-1"),
        TABLE.replace("critical", "\x1b[31mcritical\x1b[0m").encode(),
        TABLE.replace("48\t", "\x1b[1m  48  \x1b[0m").encode(),
        TABLE.replace("\n1\t", "\n[20:57:13.1][PT_LAZY][debug][tid:7] between\n\n1\t").encode(),
        TABLE.replace("\n1\t", "\nProgress 99%\n1\t").encode(),
        b"\x00\xff\xfe\n" + TABLE.encode(),
        ("".join(f"[default0]:{line}\n" for line in TABLE.splitlines())).replace("[default0]:", "worker-1: ").encode(),
    ],
    ids=[
        "plain",
        "crlf",
        "utf-16",
        "bom",
        "latin-1",
        "ansi",
        "ansi row",
        "log between",
        "print between",
        "bytes",
        "pdsh",
    ],
)
def test_damaged_and_decorated_tables(content: bytes) -> None:
    assert counts(content) == EXPECTED


def test_row_cut_at_the_end_is_reported() -> None:
    assert counts(f"{HEADER}\n48\taten::nonzero\n12\taten::ind") == [
        (None, "aten::nonzero", 48),
        (None, "aten::ind", 12),
    ]
    assert issues(f"{HEADER}\n48\taten::nonzero\n12\taten::ind") == {"cut line": 1}


def test_table_ends_before_unrelated_text() -> None:
    text = f"{HEADER}\n48\taten::nonzero\n" + "other\n" * 21 + "5\tmy::table\n"
    assert counts(text) == [(None, "aten::nonzero", 48)]
    assert issues(text) == {"row without table": 1}


@pytest.mark.parametrize(
    "row",
    ["12OO\taten::nonzero", "  I2 aten::nonzero", "12 aten:nonzero", "12 aten:_nonzero", "12 aten;:nonzero",
     "12?aten::nonzero", "l aten::nonzero"],
)  # fmt: skip
def test_a_damaged_row_is_reported(row: str) -> None:
    text = f"{HEADER}\n48\taten::digamma\n{row}\n"
    assert counts(text) == [(None, "aten::digamma", 48)]
    assert issues(text) == {"bad row": 1}
    assert issues(f"{row}\n") == {}


@pytest.mark.parametrize(
    "text",
    ["terminate called after throwing an instance of 'c10::Error'", "  what():  std::bad_alloc", "5 of 7 aten::ops",
     "2026-11-23 14:08:20 done", "step 5: 20:57:12", "1/10 [00:01<00:09]", "PASSED tests/test_a.py::test_b",
     "F tests/test_a.py::test_b", "[gw0] tests/test_a.py::test_b", "in torch::autograd"],
)  # fmt: skip
def test_other_text_in_a_table_is_no_damaged_row(text: str) -> None:
    assert issues(f"{HEADER}\n48\taten::digamma\n{text}\n") == {}


@pytest.mark.parametrize("header", [HEADER, "Frequency of op and op name that were executed on CPU:"])
def test_a_damaged_header_is_reported(header: str) -> None:
    for at in range(header.find("CPU F") if header == HEADER else 0, len(header)):
        text = f"{header[:at]}?{header[at + 1 :]}\n48\taten::nonzero\n"
        assert (counts(text), issues(text)) == ([], {"row without table": 1})


def test_rows_without_any_table_are_ignored() -> None:
    assert read_fallbacks(b"5\tmy::table\n").fallbacks == ()
    assert read_fallbacks(b"5\tmy::table\n").issues == ()


def test_ranks_of_a_launcher_interleave() -> None:
    text = (
        f"[1,0]<stdout>:{HEADER}\n"
        "[1,1]<stdout>:[20:57:12.104999][PT_FALLBACK        ][critical][tid:398F] CPU Fallback stats:\n"
        "[1,1]<stdout>:40\taten::nonzero\n"
        "[1,0]<stdout>:48\taten::nonzero\n"
        "[1,1]<stdout>:done\n"
        "[1,0]<stdout>:12\taten::digamma\n"
    )
    assert counts(text) == [(0, "aten::nonzero", 48), (0, "aten::digamma", 12), (1, "aten::nonzero", 40)]


def test_rank_in_the_header_only() -> None:
    header = HEADER.replace("[critical]", "[critical][rank:3]")
    assert counts(f"{header}\n48\taten::nonzero\n") == [(3, "aten::nonzero", 48)]


def test_ranks_without_labels_add_up() -> None:
    other = HEADER.replace("398E", "398F")
    text = f"{HEADER}\n{other}\n48\taten::nonzero\n48\taten::nonzero\n12\taten::digamma\n"
    assert sorted(counts(text)) == [
        (None, "aten::digamma", 12),
        (None, "aten::nonzero", 48),
        (None, "aten::nonzero", 48),
    ]


def test_log_lines_between_rows_do_not_end_a_table() -> None:
    between = "[20:57:13.1][PT_LAZY][debug][tid:7] between\n" * 30
    assert counts(f"{HEADER}\n48\taten::nonzero\n{between}1\taten::digamma\n") == EXPECTED


def test_same_process_printed_twice_counts_once() -> None:
    dated = TABLE.replace("[20:57", "[2024-10-18 20:57")
    assert counts(TABLE + "text\n" + dated) == EXPECTED
    assert read_fallbacks((TABLE + dated).encode()).issues == (
        ImportIssue("duplicate table", 1, "a fallback table is printed twice, first in line 4"),
    )


def test_same_rank_printed_twice_counts_once() -> None:
    table = "Frequency of op and op name that were executed on CPU:\n3\taten::digamma\n"
    assert counts(table + table, rank=2) == [(2, "aten::digamma", 3)]
    # Without a rank, the two tables may come from different processes.
    assert counts(table + table) == [(None, "aten::digamma", 3), (None, "aten::digamma", 3)]


def test_calls_are_summed_by_types_and_rank() -> None:
    text = (
        "rank0: CPU fallback index : self=HPUFloatType indices=HPULongType\n"
        "rank0: CPU fallback index : self=HPUFloatType indices=HPULongType\n"
        "rank1: CPU fallback index : self=HPUFloatType indices=HPUBoolType\n"
        "rank1: CPU fallback prims::foo : self=NewKindOfType\n"
    )
    records = read_fallbacks(text.encode()).fallbacks
    assert [(record.op, record.count, record.rank, record.dtypes) for record in records] == [
        ("aten::index", 2, 0, ("float32", "int64")),
        ("aten::index", 1, 1, ("float32", "bool")),
        ("prims::foo", 1, 1, ("NewKindOfType",)),
    ]


def test_long_words_in_call_lines_cost_no_more_than_their_length() -> None:
    text = "".join(f"CPU fallback index : {number}{'a' * 1990}\n" for number in range(200))
    began = time.process_time()
    assert len(read_fallbacks(text.encode()).fallbacks) == 1
    assert time.process_time() - began < 1


def test_refusal_and_graph_cut() -> None:
    text = (
        "Attribute check failed for: add at argument position: 1 Expected value: 1 "
        "Input value given for attribute: 2 This op will fallback to CPU\n"
        "[20:57:12.104233][PT_IRGRAPH][debug][tid:1] step marker due to cpu fallback aten::nonzero\n"
        "step marker due to local scalar\n"
    )
    records = read_fallbacks(text.encode()).fallbacks
    assert [(record.op, record.origin, record.count) for record in records] == [
        ("aten::add", "refusal", 1),
        ("aten::nonzero", "graph_cut", 1),
    ]
