"""What the pages show of recorded traces is what the program prints, where the traces are given."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from perftool.cli import app
from perftool.engine.analysis import analyze
from perftool.reporters.console import make_console
from perftool.reporters.terminal.answer import print_answer

DOCS = Path(__file__).parents[2] / "docs"
FOLDER = Path(os.environ.get("PERFTOOL_VERDICT_TRACES", "/nowhere"))
WITHOUT, WITH = (str(FOLDER / f"v100_resnet50_workers{workers}.json.gz") for workers in (0, 4))

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="PERFTOOL_VERDICT_TRACES names no folder of recorded traces"
)


def shown(page: str, begin: str) -> str:
    """The block of ``page`` that begins with ``begin``, without that."""
    found = re.search(rf"```text\n{re.escape(begin)}(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    assert found, begin
    return found[1]


def test_the_answer_on_the_page_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = io.StringIO()

    print_answer(analyze([WITHOUT]), make_console("never", file=out))

    assert out.getvalue() == shown("cuda.md", "$ habana_perf_tool analyze resnet50_num_workers_0/\n")


def test_the_comparison_on_the_page_of_cuda() -> None:
    result = CliRunner().invoke(app, ["diff", WITHOUT, WITH])

    first = shown("cuda.md", "$ habana_perf_tool diff resnet50_num_workers_0/ resnet50_num_workers_4/\n")
    assert (result.exit_code, result.stdout[: len(first)]) == (0, first)


def test_the_headline_of_the_second_recording_on_the_page_of_cuda() -> None:
    page = " ".join((DOCS / "cuda.md").read_text(encoding="utf-8").split())

    assert f'begins: "{analyze([WITH]).verdict.headline}"' in page


def test_the_shortfall_on_the_page_of_efficiency() -> None:
    found = analyze([str(FOLDER / "h100_timesformer.json.gz")]).findings

    sentence = " ".join(shown("efficiency.md", "aten::_softmax").split())
    assert f"aten::_softmax {sentence}" in [f"{one.message}." for one in found if one.code == "ENG104"]
