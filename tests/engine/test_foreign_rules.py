"""The results of third-party rules are checked before use, and the cost of such rules is limited."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from asked_run import CONTEXT, CRASHED, EVENTS
from builders.rule_files import rule
from stores import store_over

from perftool.engine.rule_tests.cases import load_cases
from perftool.engine.rules import predict, sources
from perftool.engine.rules.evaluate import evaluate
from perftool.engine.rules.row_check import MOST_RELATED, checked
from perftool.errors import QueryError, RuleError
from perftool.model.report import Finding
from perftool.model.rule import Rule
from perftool.replay.model import Model
from perftool.store.trace_store import TraceStore


@pytest.fixture(scope="module")
def opened():
    with store_over(EVENTS) as store:
        yield store


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({}, "the query must return a subject"),
        ({"subject": None}, "the query must return a subject"),
        ({"rank": "a"}, "the column rank must contain whole numbers, not 'a'"),
        ({"rank": [[1]]}, "the column rank must contain whole numbers"),
        ({"step": True}, "the column step must contain whole numbers"),
        ({"ts": -(2**100)}, "the column ts contains -1267650600228229401496703205376, which is beyond 64 bits"),
        ({"ts": float("nan")}, "the column ts contains nan"),
        ({"dur": float("inf")}, "the column dur contains inf"),
        ({"gain_ns": "1"}, "the column gain_ns must contain numbers, not '1'"),
        ({"gain_ns": float("nan")}, "the column gain_ns must contain numbers, not nan"),
        ({"track": 7}, "the column track must contain strings, not 7"),
        ({"fix_for": {"a": 1}}, "the column fix_for must contain strings"),
        ({"benchmark": ["x" * 99]}, "the column benchmark must contain strings, not ['xxxx"),
        ({"main_ratio": "x"}, "the column main_ratio must contain numbers, not 'x'"),
        ({"related": [{"name": 5}]}, "in the column 'related', name must be a string"),
        ({"related": [{"track": 5}]}, "in the column 'related', track must be a string"),
        ({"related": [1]}, "the column 'related' must contain lists of structs"),
        ({"related": "x"}, "the column 'related' must contain lists of structs"),
        ({"related": [{"ts": "now"}]}, "the column ts must contain whole numbers, not 'now'"),
        ({"related": [{}] * (MOST_RELATED + 1)}, "the column 'related' contains 101 places; at most 100 are allowed"),
    ],
)
def test_reserved_columns_have_only_valid_values(row: dict, error: str) -> None:
    with pytest.raises(QueryError) as caught:
        checked([{"subject": "s"}, row if "subject" in error else {"subject": "s", **row}])
    assert str(caught.value).startswith(error)


def test_queries_cannot_set_columns_of_the_engine() -> None:
    (row,) = checked([{"subject": "s", "predicted_ns": 5, "sources": [{"file": "/etc/passwd"}], "ts": 2.0, "n": 1}])
    assert row == {"subject": "s", "ts": 2, "n": 1}


def found(store: TraceStore, folder: Path, sql: str, whatif: str | None = None) -> tuple[Finding, ...]:
    made: Rule = replace(rule(folder, sql), whatif=whatif)
    return evaluate(store, [made], CONTEXT, CRASHED).findings


ONE = "SELECT 'all' AS subject, 1 AS n, 0 AS rank"


@pytest.mark.parametrize(
    ("whatif", "error"),
    [
        ("SELECT 'explode' AS change, id AS task FROM slices", "change is 'explode'"),
        ("SELECT ['skip'] AS change, id AS task FROM slices", "change is ['skip']"),
        ("SELECT 'shorten' AS change, id AS task, 'abc' AS factor FROM slices", "factor is 'abc', not a number"),
        ("SELECT 'shorten' AS change, id AS task, 'nan'::DOUBLE AS factor FROM slices", "factor is nan"),
        ("SELECT 'shorten' AS change, id AS task, -1e300 AS factor FROM slices", "factor is -1e+300"),
        ("SELECT 'prefetch' AS change, id AS task, 1e30::HUGEINT AS parallel FROM slices", "the column parallel"),
        ("SELECT 'skip' AS change, [id] AS task FROM slices", "the column task must contain whole numbers"),
        ("SELECT 'skip' AS change, 1 AS task, 'x' AS slice_ts) AS w, slices AS s --", "syntax error"),
        ("SELECT 1 AS n; SELECT 2", "only a single SELECT"),
    ],
)
def test_invalid_changes_are_a_finding(whatif: str, error: str, opened: TraceStore, tmp_path: Path) -> None:
    one, crash = found(opened, tmp_path, ONE, whatif)
    assert (one.subject, one.gain, crash.code) == ("all", None, "TRC001")
    assert f"whatif: {error}" in crash.message or error in crash.message


def test_the_slice_of_a_change_comes_from_the_trace(opened: TraceStore, tmp_path: Path) -> None:
    lies = "1 AS slice_id, 5 AS slice_ts, 6 AS slice_end"
    whatif = f"SELECT 'prefetch' AS change, id AS task, {lies} FROM slices WHERE name LIKE '%DataLoader%'"
    (honest,) = found(opened, tmp_path, ONE, whatif.replace(lies, "1 AS parallel"))
    (one,) = found(opened, tmp_path, ONE, whatif)
    assert one.gain == honest.gain
    assert one.gain is not None
    assert one.gain.kind == "predicted"


def test_many_findings_with_the_same_changes_are_one_replay(
    opened: TraceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    plain = Model.predict
    monkeypatch.setattr(Model, "predict", lambda self, changes: asked.append(len(changes)) or plain(self, changes))
    whatif = "SELECT 'prefetch' AS change, id AS task FROM slices WHERE name LIKE '%DataLoader%'"
    several = found(opened, tmp_path, "SELECT 'n' || range AS subject, 1 AS n, 0 AS rank FROM range(50)", whatif)
    assert len({one.gain for one in several}) == 1
    # The second replay applies all fixes together, and each change only once. Loading in the fourth step is not
    # replayed.
    assert asked == [3, 3]


def test_replays_have_a_time_limit(opened: TraceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "RULE_TIME_LIMIT_S", -1.0)
    *_, crash = found(opened, tmp_path, ONE, "SELECT 'skip' AS change, id AS task FROM slices")
    assert "whatif: the query took longer" in crash.message


def test_only_a_limited_number_of_findings_get_lines(
    opened: TraceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(opened, "has_rows", lambda name: True)
    monkeypatch.setattr(
        sources, "_sources", lambda store, rule, rank, rows: asked.append(len(rows)) or [()] * len(rows)
    )
    found = [{"subject": str(number), "rank": number % 2} for number in range(200)]
    rows = sources.add_sources(opened, rule(tmp_path), found)
    assert (len(rows), sorted(asked)) == (200, [50, 50])
    assert [row["subject"] for row in rows] == [row["subject"] for row in found]


def test_overlapping_time_counts_once() -> None:
    begins, ends = sources._united(np.array([(5, 9), (0, 3), (2, 4), (4, 5), (20, 30), (21, 22)]))
    assert (begins.tolist(), ends.tolist()) == ([0, 20], [9, 30])


@pytest.mark.parametrize("repeat", ["1000000000000", "-1", "100001"])
def test_the_number_of_events_of_a_case_is_limited(repeat: str, tmp_path: Path) -> None:
    event = f'{{name = "a", ts = 0, dur = 1, repeat = {repeat}}}'
    path = tmp_path / "USR901.toml"
    path.write_text(f'[[case]]\nname = "n"\nfindings = []\nevents = [{event}]\n')
    with pytest.raises(RuleError, match="at most 100,000 events"):
        load_cases(path)
