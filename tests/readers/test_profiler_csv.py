"""The CSV format of the native profiler."""

from __future__ import annotations

import pytest
from scanning import CsvReading, read_csv

from perftool.errors import InputError
from perftool.model.inputs import ImportIssue
from perftool.readers.trace.profiler_csv import ProfilerSlice

HEADER = (
    "Name,Trace Source,Engine,Event type,Timestamp[usec],recipeHandle,streamHandle,Recipe ID,Recipe name,"
    "Context ID,Device,Operation,Data Type,HW Event port,HW Event description,SPMU value,BMON min,BMON avg,"
    "BMON max,BMON matches,BMON configured cycles,NIC Packets amount,Misc"
)


def row(
    kind: str, ts: str, engine: str = "[HD0] TPC 5", name: str = "conv", event: str = "", context: str = "0"
) -> str:
    graph = f"0x55,0xd9,61055,debug.g_1,{context},accel0,conv_fwd_f32,float32"
    return f"{name},HW,{engine},{kind},{ts},{graph},1,{event},,,,,,,,"


def spans(*rows: str) -> list[tuple[str, int, int]]:
    """Return the (engine, ts, dur) of each slice read from ``rows``."""
    reading = read_csv("\n".join((HEADER, *rows)).encode())
    return [(item.engine, item.ts_ns, item.dur_ns) for item in reading.slices]


def issues(*rows: str) -> dict[str, int]:
    reading = read_csv("\n".join((HEADER, *rows)).encode())
    return {issue.kind: issue.count for issue in reading.issues}


def test_a_kernel_becomes_a_slice() -> None:
    rows = (
        row("INSTANT", "554804519.935268", event="TPC_QMAN_CMD_EXE"),
        row("BEGIN", "554804519.937268", event="TPC_SPU_START"),
        row("END", "554804520.095267", event="TPC_SPU_START_TO_SPU_HALT"),
        row("INSTANT", "554804520.735262", event="TPC_VPU_HALT"),
        row("COUNTER", "554804520.735262"),
    )
    assert read_csv("\n".join((HEADER, *rows, "")).encode()) == CsvReading(
        slices=(
            ProfilerSlice(
                name="conv",
                source="HW",
                engine="[HD0] TPC 5",
                ts_ns=554_804_519_937,
                dur_ns=158,
                recipe_id=61055,
                recipe="debug.g_1",
                device="accel0",
                operation="conv_fwd_f32",
                dtype="float32",
                hw_event="TPC_SPU_START_TO_SPU_HALT",
                stream="0xd9",
                recipe_handle="0x55",
            ),
        ),
    )


def test_engines_do_not_mix_and_work_in_order() -> None:
    assert spans(
        row("BEGIN", "1"),
        row("BEGIN", "2", engine="[HD1] TPC 0"),
        row("BEGIN", "3"),
        row("END", "4"),
        row("END", "5"),
        row("END", "6", engine="[HD1] TPC 0"),
    ) == [("[HD0] TPC 5", 1000, 3000), ("[HD0] TPC 5", 3000, 2000), ("[HD1] TPC 0", 2000, 4000)]


def test_end_may_have_another_name() -> None:
    assert spans(
        row("BEGIN", "1", engine="MME 0", name="SB0", event="SB0_START_EVT"),
        row("END", "3", engine="MME 0", name="WB0", event="WB0_END"),
    ) == [("MME 0", 1000, 2000)]


@pytest.mark.parametrize(
    ("rows", "problems"),
    [
        ((row("END", "1"),), {"end without begin": 1}),
        ((row("BEGIN", "1"),), {"begin without end": 1}),
        ((row("BEGIN", "1"), row("END", "2", context="7")), {"end without begin": 1, "begin without end": 1}),
        ((row("BEGIN", "2"), row("END", "1")), {"bad time": 1}),
        ((row("BEGIN", "x"), row("END", "1")), {"bad time": 1}),
        ((row("BEGIN", "nan"), row("END", "1")), {"bad time": 1}),
        (("conv,HW", ""), {"short row": 1}),
        ((row("MAYBE", "1"),), {"unknown event type": 1}),
        (('"' + "x" * 200_000 + row("END", "1"),), {"short row": 1}),
    ],
)
def test_damaged_rows(rows: tuple[str, ...], problems: dict[str, int]) -> None:
    assert spans(*rows) == []
    assert issues(*rows) == problems


def test_a_stray_quote_loses_one_row() -> None:
    rows = ('"' + row("INSTANT", "1"), row("BEGIN", "1"), row("END", "2"))
    assert spans(*rows) == [("[HD0] TPC 5", 1000, 1000)]


def test_utf_16_and_crlf() -> None:
    text = "\r\n".join((HEADER, row("BEGIN", "1"), row("END", "2"), ""))
    assert [item.dur_ns for item in read_csv(text.encode("utf-16")).slices] == [1000]


def test_csv_of_another_kind_is_refused() -> None:
    with pytest.raises(InputError, match=r"^input: the first line is not the header of a profiler CSV$"):
        read_csv(b"graph_key,bucket_id,token,recipe_key,cache_hit\n")


def test_issue_texts() -> None:
    reading = read_csv("\n".join((HEADER, row("END", "1"))).encode())
    assert reading.issues == (ImportIssue("end without begin", 1, "work that began before the recording"),)
