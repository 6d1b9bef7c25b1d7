"""``import perftool`` has only a few public names, each with a short repr."""

from __future__ import annotations

from pathlib import Path

import pytest
from events import document, kernel, step, x

import perftool
from perftool.errors import InputError, QueryError

NAMES = ["Finding", "Report", "Trace", "__version__", "analyze", "open_trace", "profile", "whatif"]


def test_the_package_gives_these_names_and_no_other() -> None:
    assert perftool.__all__ == NAMES
    assert dir(perftool) == NAMES
    assert all(getattr(perftool, name) for name in NAMES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "run.json"
    place.write_bytes(document([step(0, 0, 100), x("aten::mm", 0, 9), kernel("gemm", 50, 10)]))
    return place


def test_a_trace_has_five_names(path: Path) -> None:
    with perftool.open_trace(path) as trace:
        assert [name for name in dir(trace) if not name.startswith("_")] == [
            "close",
            "frame",
            "inputs",
            "query",
            "tables",
        ]
        assert "slices" in trace.tables
        assert trace.query("SELECT name FROM ops WHERE dur > $least", {"least": 1}) == (["name"], [("aten::mm",)])
        assert list(trace.frame("device_ops")["name"]) == ["gemm"]
        assert [read.path for read in trace.inputs] == [str(path)]
        with pytest.raises(QueryError, match=r"unknown table 'raw'; the tables are"):
            trace.frame("raw")


def test_a_trace_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("text")
    with pytest.raises(InputError, match=r"run\.json"):
        perftool.open_trace(tmp_path / "run.json")


def test_public_objects_have_a_repr_of_one_line(path: Path) -> None:
    loader = x("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 45)
    path.write_bytes(document([step(0, 0, 100), loader, x("aten::mm", 46, 9), kernel("gemm", 60, 10)]))
    report = perftool.analyze(path)
    with perftool.open_trace(path) as trace:
        shown = [repr(report), repr(trace), *map(repr, report.findings)]
    assert report.findings
    assert [text for text in shown if len(text) > 200 or "\n" in text] == []
    assert shown[0].removesuffix("s>").removesuffix(">") == f"<Report on {path}: {len(report.findings)} finding"
    assert shown[1] == f"<Trace of {path}>"
