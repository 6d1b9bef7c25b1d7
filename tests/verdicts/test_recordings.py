"""Checks the reports on recorded traces: the first sentence is the expert's, nothing is impossible, each large op has a
model or a reason, and the pages show what the program prints. Without these traces, the tests are skipped.
"""

from __future__ import annotations

import io
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import tomli
from invariants import breaches
from recordings import FILES, FOLDER, path_of, recording, sentences, write_with_late_clock

from perftool.engine.analysis import analyze
from perftool.model.efficiency import OpRate
from perftool.model.report import Report
from perftool.model.unmodelled import NO_MODEL, why_no_model
from perftool.reporters.console import make_console
from perftool.reporters.terminal.answer import print_answer

EXPECTED = {
    expected["name"]: expected
    for expected in tomli.loads((Path(__file__).parent / "expected.toml").read_text(encoding="utf-8"))["trace"]
}
DOCS = Path(__file__).parents[2] / "docs"
WITHOUT, WITH = "v100_resnet50_workers0", "v100_resnet50_workers4"
_LARGE_SHARE = 0.05

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="PERFTOOL_VERDICT_TRACES names no folder of recorded traces"
)


@pytest.mark.parametrize("name", sorted({*EXPECTED, *FILES}))
def test_a_report(name: str) -> None:
    """All checks of a trace are a single test, so that only one worker analyses the trace."""
    found = recording(name)

    assert name not in EXPECTED or unlike(found.report, EXPECTED[name]) == []
    assert list(breaches(found.report)) == []
    assert unexplained(found.ops) == []


def unlike(report: Report, expected: dict[str, Any]) -> list[str]:
    """Return how ``report`` differs from the expert's verdict."""
    texts = [report.verdict.headline, *(text for found in report.findings for text in (found.message, found.fix))]
    codes = {finding.code for finding in report.findings}
    first = [finding.code for finding in report.advice][:1]
    run = report.run.kind or "unknown"
    return [
        *(f"not in the headline: {text}" for text in expected["headline"] if text not in report.verdict.headline),
        *(f"said: {text}" for text in expected.get("never", []) if any(text in one for one in texts)),
        *(f"fires: {code}" for code in expected.get("quiet", []) if code in codes),
        *([f"advises first: {first}"] if "first" in expected and not is_first(first, expected["first"]) else []),
        *([f"a run of {run}"] if run != expected["run"] else []),
        *(f.code for f in report.findings if f.gain is not None and not expected.get("gains", True)),
    ]


def is_first(first: list[str], expected: list[str]) -> bool:
    return first[0] in expected if first else expected == []


def unexplained(rows: list[dict[str, Any]]) -> list[str]:
    """Return the ops and kernels with more than 5 % of the work over all shapes, but with neither a model nor a
    reason.
    """
    columns = [field.name for field in fields(OpRate)]
    ops = [OpRate(**{name: row[name] for name in columns}) for row in rows]
    work = sum(op.kernel_ns for op in ops)
    unknown: dict[str, int] = {}
    for op in ops:
        if op.bytes is None and op.kind != "collective" and why_no_model(op) in ("", NO_MODEL):
            unknown[op.name] = unknown.get(op.name, 0) + op.kernel_ns
    return [name for name, ns in unknown.items() if ns > _LARGE_SHARE * work]


def shown(page: str, begin: str) -> str:
    """Return the block of ``page`` that begins with ``begin``, without its beginning."""
    found = re.search(rf"```text\n{re.escape(begin)}(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    assert found, begin
    return found[1]


def test_the_answers_on_the_page_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = io.StringIO()

    print_answer(recording(WITHOUT).report, make_console("never", file=out))

    assert out.getvalue() == shown("cuda.md", "$ habana_perf_tool analyze resnet50_num_workers_0/\n")
    page = " ".join((DOCS / "cuda.md").read_text(encoding="utf-8").split())
    assert f'begins: "{recording(WITH).report.verdict.headline}"' in page


def test_a_clock_offset_is_not_called_lateness(tmp_path: Path) -> None:
    """As in test_samples.py; here the unchanged recording has been analysed already."""
    write_with_late_clock(Path(path_of("v100_dlrm_8ranks")), tmp_path)

    assert sentences(analyze([str(tmp_path)])) == sentences(recording("v100_dlrm_8ranks").report)


def test_the_shortfall_on_the_page_of_efficiency() -> None:
    found = recording("h100_timesformer").report.findings

    sentence = " ".join(shown("efficiency.md", "aten::_softmax").split())
    assert f"aten::_softmax {sentence}" in [f"{one.message}." for one in found if one.code == "ENG104"]
