"""Each op gets a single count, even if several inputs of a run contain it."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st
from scanning import read_fallbacks

from perftool.model.records import FallbackRecord, LogReading
from perftool.readers.logs import console_log
from perftool.readers.logs.fallback_totals import FallbackTotal, fallback_totals
from perftool.readers.metrics import metrics_file

LOG = """\
CPU fallback index : self=HPUFloatType
CPU fallback index : self=HPUFloatType
step marker due to cpu fallback aten::index.Tensor_out
[20:57:12.104233][PT_FALLBACK][critical][tid:398E] CPU Fallback stats:
48\taten::nonzero
2\taten::index.Tensor_out
"""
METRICS = (
    '[{"metric_name": "cpu_fallback", "statistics": '
    '{"TotalNumber": 50, "FallbackOps": {"aten::nonzero": 48, "aten::index.Tensor_out": 2}}}]\n'
)


def test_log_and_metrics_of_one_run_agree() -> None:
    readings = (console_log.read(LOG.encode()), metrics_file.read(METRICS.encode()))
    assert fallback_totals(readings) == (
        FallbackTotal("aten::nonzero", "aten::nonzero", 48, (), ("metrics", "table")),
        FallbackTotal(
            "aten::index.Tensor_out",
            "aten::index",
            2,
            (),
            ("call", "graph_cut", "metrics", "table"),
            (("float32",),),
        ),
    )


def test_killed_run_has_only_call_lines() -> None:
    reading = read_fallbacks(b"CPU fallback index : self=HPULongType\nCPU fallback index : self=HPULongType\n")
    assert fallback_totals([reading]) == (FallbackTotal("aten::index", "aten::index", 2, (), ("call",), (("int64",),)),)


def test_ranks_add_up_and_files_do_not() -> None:
    ranked = [metrics_file.read(METRICS.encode(), rank) for rank in (0, 1)]
    # The unlabelled console output of both ranks, which reports the same executions again.
    console = read_fallbacks((LOG + LOG.replace("398E", "398F")).encode())
    (nonzero, index) = fallback_totals([*ranked, console])
    assert (nonzero.count, nonzero.ranks) == (96, (0, 1))
    assert (index.count, index.ranks) == (4, (0, 1))


def test_console_and_log_file_of_one_process() -> None:
    again = LOG.replace("[20:57", "[2024-10-18 20:57")
    (nonzero, _) = fallback_totals([read_fallbacks(text.encode()) for text in (LOG, again)])
    assert nonzero.count == 48


COUNTS = st.lists(
    st.builds(
        FallbackRecord,
        op=st.sampled_from(["aten::a", "aten::a.out", "aten::b"]),
        base=st.just("aten::a"),
        count=st.integers(1, 9),
        origin=st.sampled_from(["table", "metrics"]),
        rank=st.sampled_from([None, 0, 1]),
    ),
    max_size=8,
)


@given(COUNTS, COUNTS)
def test_repeating_a_file_changes_no_count(first: list[FallbackRecord], second: list[FallbackRecord]) -> None:
    once = [LogReading(fallbacks=tuple(records)) for records in (first, second)]
    assert fallback_totals(once) == fallback_totals([*once, *once])


@given(COUNTS, COUNTS)
def test_the_order_of_files_changes_no_count(first: list[FallbackRecord], second: list[FallbackRecord]) -> None:
    files = [LogReading(fallbacks=tuple(records)) for records in (first, second)]
    assert {(total.op, total.count) for total in fallback_totals(files)} == {
        (total.op, total.count) for total in fallback_totals(files[::-1])
    }


def test_the_cost_of_calls_does_not_grow_with_the_ops_that_tables_list() -> None:
    """Totals for 30,000 ops and 30,000 calls took 35 s. Totals for 3,000 overloads of an op with 3,000 types took 859
    MiB.
    """
    overloads, ops, calls = 200, 3000, 10_000
    names = [*(f"aten::b.o{number}" for number in range(overloads)), *(f"aten::c{number}" for number in range(ops))]
    table = "CPU Fallback stats:\n" + "".join(f"1 {name}\n" for name in names)
    log = table + "".join(f"CPU fallback aten::b : x=HPUT{number}\n" for number in range(calls))
    reading = read_fallbacks(log.encode())
    before = time.process_time()
    totals = fallback_totals([reading])
    assert time.process_time() - before < 2
    assert len(totals) == overloads + ops
    [(kept, more)] = {(len(total.dtypes), total.more_dtypes) for total in totals if total.base == "aten::b"}
    assert kept > 50
    assert kept + more == calls
