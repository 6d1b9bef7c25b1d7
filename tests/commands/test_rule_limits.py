"""Limits of shipped rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders.program import Run
from events import document, step, x

from perftool.engine.rules import rule_queries
from perftool.errors import QueryTimeoutError
from perftool.store.trace_store import TraceStore


@pytest.mark.parametrize(("text", "limit_s"), [(1000, 5), (40 << 20, 15), (1 << 30, 30), (0, 30)])
def test_a_small_input_gets_less_time(text: int, limit_s: float) -> None:
    assert rule_queries.cpu_limit_s(text) == limit_s


@pytest.mark.parametrize("selected", ["STP,TRC001", "STP"])
def test_a_rule_that_takes_too_long_does_not_pass_the_gate(
    selected: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("t.json").write_bytes(document([*(step(at, 100 * at, 100) for at in range(4)), x("aten::mm", 10, 20)]))

    def timed(store: TraceStore, sql: str, params: dict[str, Any], limit_s: float) -> None:
        raise QueryTimeoutError(limit_s)

    monkeypatch.setattr(TraceStore, "timed", timed)
    assert run("lint", "t.json", "--select", selected) == 1
    assert "took longer than 5 s" in run.out + run.err
