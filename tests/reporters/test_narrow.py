"""Tables on terminals that are too narrow for them. Numbers are never cut."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from perftool.model.gaudi import Fallback
from perftool.model.report import BREAKDOWN, Share, Step
from perftool.reporters.terminal.tables import fallbacks_table, print_table, shares_table, steps_table

STEPS = [Step(0, "ProfilerStep#4", 0, 111_428_000, dict.fromkeys(BREAKDOWN, 50_223_456), partial=False)]
SHARES = [Share("void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel>", 3_910_000, 1145, 0.111)]


def lines(table, width: int) -> list[str]:
    out = io.StringIO()
    print_table(table, Console(file=out, width=width))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_columns_move_together() -> None:
    times = ["111.428", *["50.223"] * len(BREAKDOWN)]
    wide, narrow = (lines(steps_table(STEPS, "step"), width) for width in (120, 80))
    assert [row.split() for row in wide] == [row.split() for row in narrow]
    assert narrow[1].split() == ["ProfilerStep#4", *times]
    assert max(map(len, narrow)) <= 80 < max(map(len, wide))


@pytest.mark.parametrize("width", [20, 40, 60])
def test_numbers_are_never_cut_at_any_width(width: int) -> None:
    assert lines(steps_table(STEPS, "step"), width)[1].split()[1:] == ["111.428", *["50.223"] * len(BREAKDOWN)]
    name, numbers = lines(shares_table(SHARES), width)[1].split("…")
    assert name.strip().startswith("void")
    assert numbers.split() == ["3.91", "ms", "11.1", "%", "1,145"]


def test_cells_of_several_words_wrap() -> None:
    found = [Fallback("aten::digamma", "float32", 14, 6, 6_820_000, "call+graph_cut+metrics+table+trace")]
    rows = lines(fallbacks_table(found), 60)
    assert " ".join(" ".join(rows[1:]).split()) == "aten::digamma 14 6 6.82 ms float32 log, metrics file, trace"
    assert max(map(len, rows)) <= 60
