"""Baselines: their contents, what they subtract, and messages about invalid ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from builders.lint_findings import finding
from hypothesis import given
from hypothesis import strategies as st

from perftool import __version__
from perftool.engine.gate.baseline import read_baseline, render_baseline, subtract
from perftool.errors import BaselineError
from perftool.model.lint import BaselineEntry

ONE = finding(fingerprint="1" * 16, subject="b")
TWO = finding("SYN101", fingerprint="2" * 16, subject="a")
CODES = ("GAP101", "SYN101")


def test_the_file(tmp_path: Path) -> None:
    document = render_baseline([TWO, ONE, ONE])
    entry = {"code": "GAP101", "file": "runs/a.json", "message": "device idle 1.8 ms", "subject": "b"}
    data = json.loads(document)
    assert {key: data[key] for key in ("version", "tool")} == {
        "version": 1, "tool": {"name": "habana_perf_tool", "version": __version__},
    }  # fmt: skip
    assert data["findings"][0] == {**entry, "fingerprint": "1" * 16, "count": 2}
    path = tmp_path / "baseline.json"
    path.write_bytes(document)
    assert [(found.code, found.count) for found in read_baseline(path)] == [("GAP101", 2), ("SYN101", 1)]


def test_failures_are_never_accepted() -> None:
    assert json.loads(render_baseline([finding("TRC000")]))["findings"] == []


def _entry(fingerprint: str, code: str = "GAP101", count: int = 1) -> BaselineEntry:
    return BaselineEntry(fingerprint, code, "a.json", "s", "m", count)


def test_only_as_many_findings_are_accepted_as_were_counted() -> None:
    marked, stale = subtract([ONE, ONE, TWO], [_entry("1" * 16)], CODES)
    assert [(found.suppressed, found.baseline) for found in marked] == [
        (True, "unchanged"), (False, "new"), (False, "new"),
    ]  # fmt: skip
    assert stale == []


def test_entries_not_found_are_stale_unless_their_rule_did_not_run() -> None:
    entries = [_entry("3" * 16), _entry("4" * 16, code="FUS101")]
    assert subtract([ONE], entries, CODES)[1] == entries[:1]


_FINDINGS = st.lists(st.sampled_from([ONE, TWO, replace(ONE, file="b.json")]))


@given(_FINDINGS)
def test_a_written_baseline_accepts_all_of_its_findings(findings: list) -> None:
    entries = [BaselineEntry(**entry) for entry in json.loads(render_baseline(findings))["findings"]]
    marked, stale = subtract(findings, entries, CODES)
    assert all(found.suppressed for found in marked)
    assert stale == []
    assert render_baseline(findings[::-1]) == render_baseline(findings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "the baseline cannot be read (No such file or directory)"),
        ("{", "the baseline is not valid JSON"),
        ("[]", "not a baseline, because it has no version number; write one with --write-baseline"),
        ('{"findings": []}', "not a baseline, because it has no version number;"),
        ('{"version": "1"}', "not a baseline, because it has no version number;"),
        ('{"version": 7}', "the baseline has version 7, not 1; rewrite it with --write-baseline"),
        ('{"version": 1}', "key findings must be a list"),
        ('{"version": 1, "findings": [{}]}', "key findings[0] must have the keys fingerprint, code, file,"),
        (
            '{"version": 1, "findings": [{"fingerprint": "", "code": "", "file": "", "subject": "", "message": "",'
            ' "count": "1"}]}',
            "key findings[0].count must be a number",
        ),
    ],
)
def test_wrong_baselines(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "baseline.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(BaselineError) as caught:
        read_baseline(path)
    assert str(caught.value).startswith(f"{path}: {message}")
