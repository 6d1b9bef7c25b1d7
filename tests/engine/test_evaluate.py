"""Which rules apply, what they find, and the wording and the order of the findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from builders.rule_files import rule
from events import kernel, runtime, step, x
from stores import store_over

from perftool.engine.rules.evaluate import MOST_FINDINGS, Outcome, evaluate, fingerprint
from perftool.engine.rules.pack import builtin_folder, is_shipped, load_rule, shipped_rules
from perftool.engine.rules.rule_queries import Context
from perftool.errors import QueryError
from perftool.model.report import Gain, Location, NotApplicable
from perftool.store.trace_store import TraceStore

CONTEXT = Context("cuda", steps=2, step_ns=1000, window_ns=2000)
CRASHED = load_rule(builtin_folder() / "trace_health" / "TRC001.toml")


@pytest.fixture(scope="module")
def opened() -> Iterator[TraceStore]:
    """All tests share this store, which also checks that no rule spoils a store for later rules."""
    events = [step(1, 0, 100), runtime("cudaLaunchKernel", 5, 5, 1), kernel("k", 20, 10, 1), x("op", 50, 5)]
    with store_over(events) as store:
        yield store


@pytest.fixture
def run(opened: TraceStore, tmp_path: Path) -> Callable[..., Outcome]:
    """Return a function that evaluates a rule made from a query, a message and other keys."""

    def evaluate_one(sql: str | None = None, message: str | None = None, **keys: str) -> Outcome:
        return evaluate(opened, [rule(tmp_path, sql, message, **keys)], CONTEXT, CRASHED)

    return evaluate_one


def test_a_finding_carries_everything(run: Callable[..., Outcome]) -> None:
    sql = (
        "SELECT name AS subject, rank, step, ts, dur, kernel AS busy_ns, 0.5 AS share_ratio, 2048 AS moved_bytes,"
        " 1234 AS n, $limit AS allowed, [{'name': 'x', 'ts': 1, 'dur': 2, 'step': 3}] AS related,"
        " 400 AS gain_ns FROM steps"
    )
    message = "{subject}: {busy} {busy_ns} {share_ratio} {moved} {n} {allowed} {limit}"
    (finding,) = run(sql, message).findings
    assert finding.message == "ProfilerStep#1: 10.0 us 10.0 us 50.0 % 2.00 KiB 1,234 2 2"
    assert (finding.code, finding.subject, finding.rank) == ("USR901", "ProfilerStep#1", 0)
    assert finding.location == Location(None, 1, 0, 100_000)
    assert finding.related == (Location(None, 3, 1, 2, "x"),)
    assert {key: float(value) for key, value in finding.evidence.items()} == {
        "busy_ns": 10_000, "share_ratio": 0.5, "moved_bytes": 2048, "n": 1234, "allowed": 2,
    }  # fmt: skip
    assert finding.gain == Gain(400, 0.4)


@pytest.mark.parametrize(
    ("gain", "expected"),
    [("400", Gain(400, 0.4)), ("5000", Gain(1000, 1.0)), ("-3", Gain(0, 0.0)), ("NULL", None), ("0.7", Gain(0, 0.0))],
)
def test_a_gain_is_between_zero_and_the_step(gain: str, expected: Gain | None, run: Callable[..., Outcome]) -> None:
    (finding,) = run(f"SELECT 'all' AS subject, 1 AS n, {gain} AS gain_ns").findings
    assert finding.gain == expected


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"devices": '["hpu", "rocm"]'}, "only for hpu, rocm; this run used cuda"),
        ({"needs": '["collectives"]'}, "the input shows no collectives"),
        ({"needs": '["steps", "optimizer_steps"]'}, "the input shows no optimizer steps"),
    ],
)
def test_why_a_rule_does_not_apply(keys: dict[str, str], reason: str, run: Callable[..., Outcome]) -> None:
    found = run(**keys)
    assert (found.findings, found.not_applicable) == ((), (NotApplicable("USR901", reason),))


@pytest.mark.parametrize(
    ("names", "found"),
    [('["op"]', 1), ('["other", "o*"]', 1), ('["cudaLaunch*"]', 1), ('["o"]', 0), ('["k"]', 0), ('["*::op"]', 0)],
)
def test_a_rule_without_its_names_finds_nothing(names: str, found: int, run: Callable[..., Outcome]) -> None:
    outcome = run(needs=f'["steps"]\nneeds_names = {names}')
    assert (len(outcome.findings), outcome.not_applicable) == (found, ())


@pytest.mark.parametrize(
    ("condition", "found"), [("SELECT 1 FROM steps", 1), ("SELECT 1 FROM steps WHERE dur > $limit * 1e9", 0)]
)
def test_a_rule_whose_condition_has_no_row_finds_nothing(
    condition: str, found: int, opened: TraceStore, tmp_path: Path
) -> None:
    one = replace(rule(tmp_path), only_if=condition)
    assert len(evaluate(opened, [one], CONTEXT, CRASHED).findings) == found


@pytest.mark.parametrize(
    ("sql", "message", "error"),
    [
        ("SELECT nonsense FROM steps", None, "nonsense"),
        ("SELEC 1", None, "syntax error"),
        ("DROP TABLE raw", None, "only a single SELECT is allowed"),
        ("SELECT 1 AS n", None, "subject"),
        ("SELECT 'all' AS subject, 1 AS n WHERE 1 > $nothing", None, "nothing"),
        ("SELECT 'all' AS subject", None, "n"),
        ("SELECT 'all' AS subject, 1 AS n", "{missing}", "missing"),
        ("SELECT 'all' AS subject, 1 AS n, 3 AS related", None, ""),
        ("SELECT 'all' AS subject, 1 AS n, 'infinity'::DOUBLE AS gain_ns", None, ""),
    ],
)
def test_a_rule_that_crashes_is_a_finding(
    sql: str, message: str | None, error: str, run: Callable[..., Outcome]
) -> None:
    (finding,) = run(sql, message).findings
    assert (finding.code, finding.subject, finding.severity) == ("TRC001", "USR901", "error")
    assert error in finding.message


def test_a_rule_that_needs_an_unknown_table_is_a_finding(run: Callable[..., Outcome]) -> None:
    (finding,) = run(needs='["nothing"]').findings
    assert (finding.code, "unknown table nothing" in finding.message) == ("TRC001", True)


def test_without_a_rule_for_crashes_the_error_names_the_rule(store: Callable[..., TraceStore], tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="USR901: "):
        evaluate(store([step(1, 0, 100)]), [rule(tmp_path, "SELECT nonsense")], CONTEXT)


def test_the_largest_gain_comes_first_then_the_worst(store: Callable[..., TraceStore], tmp_path: Path) -> None:
    def one(code: str, severity: str, gain: str) -> object:
        sql = f"SELECT 'all' AS subject, 1 AS n, {gain} AS gain_ns"
        return rule(tmp_path, sql, code=f'"{code}"', severity=f'"{severity}"')

    rules = [one("USR901", "info", "NULL"), one("USR902", "error", "NULL"), one("USR903", "info", "10"),
             one("USR904", "info", "20"), one("USR905", "warning", "10")]  # fmt: skip
    found = evaluate(store([step(1, 0, 100)]), rules, CONTEXT, CRASHED).findings  # type: ignore[arg-type]
    assert [finding.code for finding in found] == ["USR904", "USR903", "USR905", "USR902", "USR901"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ProfilerStep#1", "ProfilerStep#25"),
        ("/home/me/train.py(12): f", "/srv/job/src/train.py(340): f"),
        ("object at 0x7f3a12", "object at 0xffff0001"),
        ("rank 0", "rank 7"),
    ],
)
def test_a_fingerprint_survives_what_changes_between_recordings(one: str, other: str) -> None:
    assert fingerprint("USR901", one) == fingerprint("USR901", other)


def test_a_fingerprint_distinguishes_rules_and_subjects() -> None:
    marks = {fingerprint("USR901", "aten::add"), fingerprint("USR901", "aten::mul"), fingerprint("USR902", "aten::add")}
    assert len(marks) == 3
    assert all(len(mark) == 16 and int(mark, 16) >= 0 for mark in marks)


def test_findings_of_a_rule_are_limited_and_the_rest_is_reported(run: Callable[..., Outcome]) -> None:
    found = run("SELECT 'k' || range AS subject, 1 AS n FROM range(200000)").findings
    assert len([finding for finding in found if finding.code == "USR901"]) == MOST_FINDINGS
    (failure,) = [finding for finding in found if finding.code == "TRC001"]
    assert failure.message.startswith("rule USR901 failed: it found too many rows; only the first 1,000 rows")


def test_names_that_a_rule_looks_for_are_matched_within_its_time_limit(run: Callable[..., Outcome]) -> None:
    pattern = "*" + "a*" * 20 + "b"
    assert run("SELECT 'all' AS subject, 1 AS n", needs=f'["steps"]\nneeds_names = ["{pattern}"]').findings == ()


def test_only_rules_equal_to_shipped_ones_are_trusted() -> None:
    shipped = [rule for rule in shipped_rules() if rule.sql]
    assert all(map(is_shipped, shipped))
    assert not any(is_shipped(replace(rule, sql=f"{rule.sql} ")) for rule in shipped)
    assert not any(is_shipped(replace(rule, code="USR901")) for rule in shipped)
    assert not any(is_shipped(replace(rule, needs_names=("*a*a*",))) for rule in shipped)
    assert not any(is_shipped(replace(rule, only_if="SELECT 2")) for rule in shipped)
    # The SQL that describes a fix must be the shipped SQL as well, because any other SQL is as unsafe as a user's.
    assert not any(is_shipped(replace(rule, whatif="SELECT 1")) for rule in shipped)
