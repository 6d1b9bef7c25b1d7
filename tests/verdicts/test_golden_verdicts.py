"""The first sentence of each recorded trace is the expert's, where the traces are given."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import tomli

from perftool.engine.analysis import analyze

EXPECTED = tomli.loads((Path(__file__).parent / "expected.toml").read_text(encoding="utf-8"))["trace"]
FOLDER = os.environ.get("PERFTOOL_VERDICT_TRACES")


@pytest.mark.skipif(not FOLDER, reason="PERFTOOL_VERDICT_TRACES names no folder of recorded traces")
@pytest.mark.parametrize("expected", EXPECTED, ids=lambda expected: expected["name"])
def test_the_verdict_is_the_experts(expected: dict[str, Any]) -> None:
    trace = Path(f"{FOLDER}/{expected['name']}")
    # Several ranks are a folder.
    report = analyze([str(trace) if trace.is_dir() else f"{trace}.json.gz"])
    said = [report.verdict.headline, *(text for found in report.findings for text in (found.message, found.fix))]
    first = [finding.code for finding in report.advice][:1]

    assert [text for text in expected["headline"] if text not in report.verdict.headline] == []
    assert [text for text in expected.get("never", []) if any(text in one for one in said)] == []
    assert "first" not in expected or (first[0] in expected["first"] if first else expected["first"] == [])
    assert expected.get("gains", True) or {finding.gain for finding in report.findings} <= {None}
    assert set(expected.get("quiet", [])) & {finding.code for finding in report.findings} == set()
    assert (report.run.kind or "unknown") == expected["run"]
