"""Dropped and cut events are counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from events import document, step, x
from stores import store_over

import perftool
from perftool.store.load import LONGEST_NAME
from perftool.store.readings import read_text
from perftool.store.trace_store import TraceStore


@pytest.mark.parametrize("letter", ["n", "ü"])
def test_names_that_are_cut_are_counted(letter: str) -> None:
    names = (letter * (LONGEST_NAME // len(letter.encode())), letter * (LONGEST_NAME + 1), letter * (3 * LONGEST_NAME))
    with store_over([x(name, at, 5) for at, name in enumerate(names)]) as store:
        lengths = [row["n"] for row in store.select("SELECT strlen(name) AS n FROM raw ORDER BY ts")]
        assert store.rows("input_issues")[0]["count"] == 2
    assert lengths[0] == LONGEST_NAME
    assert max(lengths) < 3 * LONGEST_NAME


def test_a_damaged_file_has_its_names_cut_and_counted_too(tmp_path: Path) -> None:
    place = tmp_path / "run.json"
    text = document([x("a", 0, 5), x("n" * (LONGEST_NAME + 1), 10, 5)])
    place.write_bytes(text.replace(b'"ts"', b'"ts":1,"ts"', 1))
    issues = {issue.kind: issue.count for issue in perftool.analyze(place, rules=[]).inputs[0].issues}
    assert issues["cut names"] == 1


def test_inputs_of_ops_that_are_too_long_are_left_out_and_counted() -> None:
    """Queries may copy the inputs of an op for each of its kernels."""
    short, long = ([[number, 3] for number in range(count)] for count in (1000, 5000))
    with store_over([x("aten::cat", at, 5, **{"Input Dims": dims}) for at, dims in enumerate((short, long))]) as store:
        kept = [row["input_dims"] is not None for row in store.rows("ops")]
        [issue] = store.rows("input_issues")
    assert (kept, issue["kind"], issue["count"]) == ([True, False], "long inputs", 1)


def test_steps_that_overlap_others_are_counted() -> None:
    # Steps 2 and 3 begin inside step 1, whose annotation appears twice.
    events = [step(1, 0, 1000), step(2, 100, 1000), step(3, 200, 1000), step(1, 1, 998), step(4, 1300, 1000)]
    with store_over([*events, x("aten::mm", 10, 5)]) as store:
        [issue] = [row for row in store.rows("input_issues") if row["kind"] == "overlapping steps"]
    assert (issue["count"], issue["message"]) == (
        2,
        "2 profiler steps overlap earlier ones, so they are not counted",
    )


def test_consecutive_steps_are_not_an_issue() -> None:
    with store_over([step(number, number * 1000, 1000) for number in range(4)]) as store:
        assert store.rows("input_issues") == []


def test_long_names_that_together_are_too_long_are_cut_in_their_middle() -> None:
    """Otherwise, every row of every table would contain a copy of its name: 20,000 kernels of one op took 3.7 GB."""
    names = [f"{number}{'n' * 5000}({number})" for number in range(300)]
    with store_over([x(name, at, 5) for at, name in enumerate(names)]) as store:
        kept = store.rows("ops")
        assert {row["count"] for row in store.rows("input_issues")} == {300}
    assert sorted(row["name"] for row in kept) == sorted(f"{name[:512]}…{name[-512:]}" for name in names)
    with store_over([x(name, at, 5) for at, name in enumerate(names[:10])]) as store:
        assert [row["name"] for row in store.rows("ops")] == names[:10]


def test_compilations_that_are_only_counted_have_limited_rows_over_all_inputs(tmp_path: Path) -> None:
    """A log of 90 kB used to become 10,000,000 rows, and several such logs became many times as many rows."""
    line = "[DETECT_RECOMPILE_AUTO][net]step:{} Recompilation! new input signature num_graphs:{}\n"
    for rank in range(2):
        text = "".join(line.format(number, 30_000) for number in range(5))
        (tmp_path / f"rank{rank}.log").write_text(text + line.format(5, 10**18 - 1))
    with TraceStore() as store:
        for rank in range(2):
            store.add_reading(read_text(str(tmp_path / f"rank{rank}.log")))
        kept, issues = store.rows("compilations"), store.rows("input_issues")
    # Each of the 12 lines has a row, and so do the first 100,000 of the other compilations.
    steps = Counter(row["step"] for row in kept)
    assert (steps[0], steps.total()) == (30_001, 100_012)
    assert [issue["count"] for issue in issues] == [10**18 + 49_993, 10**18 + 149_993]
    assert {issue["kind"] for issue in issues} == {"too many compilations"}
