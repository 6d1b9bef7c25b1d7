"""The time limit that all rules from packs share, and the message once it is reached."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from asked_run import CONTEXT, CRASHED, EVENTS
from builders.rule_files import TEXT, rule, write
from stores import store_over

from perftool.engine.rules import allowance, pack
from perftool.engine.rules.evaluate import Outcome, evaluate
from perftool.engine.rules.pack import load_pack, load_packs, shipped_rules
from perftool.engine.settings.settings import load_settings
from perftool.errors import QueryError, RuleError, SettingsError
from perftool.model.rule import Rule

ONE = "SELECT 'all' AS subject, 1 AS n, 0 AS rank"
WHATIF = "SELECT 'prefetch' AS change, id AS task FROM slices WHERE name LIKE '%DataLoader%'"
SPENT = "third-party rules may use 120 s and 64 MiB in total"


def rules(folder: Path, count: int, sql: str = ONE, **keys: str) -> list[Rule]:
    return [rule(folder, sql, code=f'"USR90{number}"', **keys) for number in range(1, count + 1)]


def found(asked: list[Rule], crashed: Rule | None = CRASHED) -> Outcome:
    with store_over(EVENTS) as store:
        return evaluate(store, asked, CONTEXT, crashed)


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a limit so low that the first rule reaches it."""
    monkeypatch.setattr(allowance, "MOST_BYTES", 1_000)
    monkeypatch.setattr(allowance.SpentError, "__str__", lambda self: SPENT)


@pytest.mark.usefixtures("little")
def test_remaining_rules_do_not_run_and_are_reported_once(tmp_path: Path) -> None:
    outcome = found(rules(tmp_path, 5))
    crash, first = sorted(outcome.findings, key=lambda finding: finding.code)
    assert (first.code, first.message) == ("USR901", "all: 1")
    assert crash.message == f"rule USR902 and 3 more failed: {SPENT}"
    assert [(skipped.code, skipped.reason) for skipped in outcome.not_applicable] == [
        (f"USR90{number}", SPENT) for number in range(2, 6)
    ]
    with pytest.raises(QueryError, match="third-party rules may use"):
        found(rules(tmp_path, 2), None)


def test_time_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(0, 1_000, 50))
    monkeypatch.setattr(allowance, "monotonic", lambda: next(seconds))
    outcome = found(rules(tmp_path, 5))
    # Each rule takes 50 of the 120 s. A rule that has started is not interrupted, so three rules run.
    assert [skipped.code for skipped in outcome.not_applicable] == ["USR904", "USR905"]


@pytest.mark.usefixtures("little")
def test_a_rule_whose_fix_cannot_be_replayed_any_more_keeps_its_findings(tmp_path: Path) -> None:
    (one,) = rules(tmp_path, 1)
    outcome = found([replace(one, whatif=WHATIF)])
    assert [(finding.code, finding.gain) for finding in outcome.findings] == [("USR901", None), ("TRC001", None)]
    assert outcome.not_applicable == ()


@pytest.mark.usefixtures("little")
def test_shipped_rules_still_run(tmp_path: Path) -> None:
    outcome = found([*rules(tmp_path, 2), *(one for one in shipped_rules() if one.code.startswith("GAP"))])
    assert [f.subject for f in outcome.findings if f.code == "TRC001"] == ["USR902"]


def test_the_texts_of_a_rule_count_with_every_finding(tmp_path: Path) -> None:
    long = replace(rules(tmp_path, 1, "SELECT range AS subject, 1 AS n FROM range(900)")[0], why="x" * 80_000)
    outcome = found([long, *rules(tmp_path, 2)[1:]])
    assert [skipped.code for skipped in outcome.not_applicable] == ["USR902"]


def test_the_size_of_a_pack_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder, ("USR901", f"USR90{number}"), ("a-rule", f"a-rule-{number}"), name=f"USR90{number}.toml")
    assert len(load_pack(tmp_path)) == 3
    monkeypatch.setattr(pack, "_MOST_RULES", 2)
    with pytest.raises(RuleError, match="more than 2 rules"):
        load_pack(tmp_path)
    with pytest.raises(RuleError, match="the packs contain more than 2 rules in total"):
        load_packs([tmp_path / str(number) for number in range(3)])
    monkeypatch.undo()
    monkeypatch.setattr(pack, "_LARGEST_PACK", 2 * len(TEXT))
    with pytest.raises(RuleError, match="the rules are larger than 0 MiB in total"):
        load_pack(tmp_path)
    (tmp_path / "0" / "USR900.toml").write_text("#" * (65 << 10))
    monkeypatch.undo()
    with pytest.raises(RuleError, match="larger than 64 KiB"):
        load_pack(tmp_path)


def test_a_discovered_pack_has_no_rules_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("stranger/rules/deep", "stranger/more", "elsewhere"):
        Path(folder).mkdir(parents=True)
    write(Path("elsewhere"))
    config = Path("stranger/habana_perf_tool.toml")
    config.write_text('rule-packs = ["./more/../rules"]')
    write(Path("stranger/more"), ("USR901", "USR902"), name="USR902.toml")
    os.symlink("../../more/USR902.toml", "stranger/rules/deep/USR902.toml")
    assert load_settings(["stranger"]).rule_packs == (Path("stranger/rules"),)
    os.symlink("../../../elsewhere/USR901.toml", "stranger/rules/deep/USR901.toml")
    with pytest.raises(SettingsError) as caught:
        load_settings(["stranger"])
    assert "key rule-packs" in str(caught.value)
    assert "the rule more/../rules/deep/USR901.toml is a link to a file elsewhere; name the file" in str(caught.value)
    assert load_settings(["stranger"], trust=True) == load_settings([], [str(config)])
    assert len(load_pack(Path("stranger/rules"))) == 2
