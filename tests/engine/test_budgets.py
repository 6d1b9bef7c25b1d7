"""The syntax of budgets, and when they hold."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from perftool.engine.gate.budgets import Budget, budget_option, check_budgets, parse_budgets
from perftool.engine.rules.pack import builtin_folder, load_pack
from perftool.engine.settings.settings import BudgetText
from perftool.errors import QueryError, SettingsError
from perftool.model.metrics import metric_kinds
from perftool.model.report import Metric
from perftool.store.trace_store import TraceStore

METRICS = tuple(
    metric
    for metric in metric_kinds()
    if metric.name in ("step_time_ms", "dataloader_ratio", "device_busy_ratio", "peak_memory_bytes", "steps")
)
RULES = load_pack(builtin_folder())
SUMMARY = {
    "step_time_ms": Metric("step_time_ms", 125.0, "ms"),
    "dataloader_ratio": Metric("dataloader_ratio", None, "ratio"),
    "peak_memory_bytes": Metric("peak_memory_bytes", float(3 << 30), "bytes"),
}


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("step_time_ms<=120", Budget("step_time_ms", "<=", 120.0)),
        (" step_time_ms  < 1.5e2 ", Budget("step_time_ms", "<", 150.0)),
        ("dataloader_ratio<=5%", Budget("dataloader_ratio", "<=", 0.05)),
        ("peak_memory_bytes>=.5", Budget("peak_memory_bytes", ">=", 0.5)),
        (
            "reads: SELECT count(*) FROM syncs WHERE dur >= 10 <= 3",
            Budget("reads", "<=", 3.0, "SELECT count(*) FROM syncs WHERE dur >= 10"),
        ),
    ],
)
def test_how_budgets_are_written(text: str, budget: Budget) -> None:
    assert parse_budgets([budget_option(text)], METRICS) == (budget,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("step_time_ms", "--budget 'step_time_ms': expected a metric and its limit"),
        ("step_time_ms<=fast", "--budget: '<=fast' is not a limit; write '<= 120' or '<= 5%'"),
        ("step_time_ms<=1e999", "--budget: the limit '<=1e999' is too large"),
        ("dataloader_ratio<=1e999%", "--budget: the limit '<=1e999%' is too large"),
        (f"q: SELECT 1 <= {'9' * 400}", "--budget: the limit '<= 999"),
        (
            "speed<=1",
            "--budget: unknown metric 'speed'; the metrics are dataloader_ratio, device_busy_ratio, pe",
        ),
        ("q: DROP TABLE x <= 1", "--budget 'q: DROP TABLE x <= 1': expected"),
    ],
)
def test_wrong_budgets(text: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_budgets([budget_option(text)], METRICS)
    assert str(caught.value).startswith(message)


def test_a_number_alone_is_a_maximum_if_less_is_better() -> None:
    text = BudgetText("step_time_ms", "120", None, "a.toml, key budgets.step_time_ms")
    assert parse_budgets([text], METRICS) == (Budget("step_time_ms", "<=", 120.0),)


@pytest.mark.parametrize(
    ("name", "query"),
    [
        pytest.param("device_busy_ratio", None, id="more is better"),
        pytest.param("steps", None, id="neither is better"),
        pytest.param("step_time_ms", "SELECT 1", id="a query"),
    ],
)
def test_a_number_alone_is_refused_unless_less_is_better(name: str, query: str | None) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_budgets([BudgetText(name, "0.8", query, "a.toml, key budgets")], METRICS)
    expected = "'0.8' does not say whether it is a maximum or a minimum; write '<= 0.8' or '>= 0.8'"
    assert str(caught.value) == f"a.toml, key budgets: {expected}"


def check(tmp_path: Path, *budgets: Budget) -> list[tuple[str, str]]:
    trace = tmp_path / "trace.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 5}
    trace.write_text(json.dumps({"traceEvents": [event]}))
    with TraceStore.for_files([str(trace)]) as store:
        store.add_trace(str(trace))
        return [(found.code, found.message) for found in check_budgets(budgets, SUMMARY, store.query, RULES)]


def test_a_budget_that_is_met_gives_no_finding(tmp_path: Path) -> None:
    assert check(tmp_path, Budget("step_time_ms", "<=", 125.0), Budget("n", "<", 2, "SELECT count(*) FROM ops")) == []


def test_a_broken_budget_and_a_missing_number_are_findings(tmp_path: Path) -> None:
    budgets = (
        Budget("step_time_ms", "<=", 120.0),
        Budget("dataloader_ratio", "<=", 0.05),
        Budget("peak_memory_bytes", "<=", float(2 << 30)),
        Budget("n", "<", 1, "SELECT count(*) FROM ops"),
        Budget("none", "<", 1, "SELECT max(dur) FROM ops WHERE name = 'x'"),
    )
    assert check(tmp_path, *budgets) == [
        ("BUD101", "step_time_ms is 125 ms; the budget is <= 120 ms"),
        ("BUD102", "dataloader_ratio is not known from this input, so the budget of <= 5.0 % cannot be checked"),
        ("BUD101", "peak_memory_bytes is 3.00 GiB; the budget is <= 2.00 GiB"),
        ("BUD101", "n is 1; the budget is < 1"),
        ("BUD102", "none is not known from this input, so the budget of < 1 cannot be checked"),
    ]


@pytest.mark.parametrize("value", ["count(*) / 0", "0 / 0"])
def test_a_number_that_is_not_finite_meets_no_budget(tmp_path: Path, value: str) -> None:
    found = check(tmp_path, Budget("n", ">=", 0.9, f"SELECT {value} FROM ops GROUP BY ALL"))
    assert [code for code, _ in found] == ["BUD102"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT 1, 2", "budget n: the query must return one number, not 1 row of 2 columns"),
        ("SELECT 'a'", "budget n: the query must return a number, not 'a'"),
    ],
)
def test_a_query_must_give_one_number(tmp_path: Path, query: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        check(tmp_path, Budget("n", "<", 1, query))
    assert str(caught.value) == message


def test_queries_of_budgets_share_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter(range(0, 1000, 50))
    clock = SimpleNamespace(monotonic=lambda: next(moments))
    monkeypatch.setattr("perftool.engine.gate.budgets.time", clock)
    budgets = [Budget(f"n{number}", "<", 2, "SELECT 1") for number in range(4)]
    assert check(tmp_path, *budgets[:2]) == []
    with pytest.raises(QueryError, match=r"^budget n2: not checked; earlier queries took 120 s in total$"):
        check(tmp_path, *budgets)


def test_a_budget_text_is_plain_data() -> None:
    assert budget_option("a<=1") == BudgetText("a", "<=1", None, "--budget")
