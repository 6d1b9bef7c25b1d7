"""JSON is refused if its values would need many times the memory of its text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perftool.engine.compare.saved_report import read_saved
from perftool.engine.gate.baseline import read_baseline
from perftool.errors import PerfToolError
from perftool.readers.flight import dump
from perftool.readers.metrics import compilation_stats
from perftool.readers.nodes import post_graph
from perftool.readers.serving import client_result
from perftool.readers.text.bounded_json import parsed
from perftool.readers.trace import memory_snapshot

_COUNT = 1_000_000


@pytest.mark.parametrize("value", ["[]", "{}"])
def test_only_as_many_lists_and_objects_as_real_files_have_are_parsed(value: str) -> None:
    assert len(parsed(f"[{value}{f',{value}' * 9_999}]".encode())) == 10_000
    assert len(parsed(f"[{value}{f',{value}'.ljust(40) * 999_999}]".encode())) == _COUNT
    with pytest.raises(ValueError, match=f"{_COUNT + 1:,} lists and objects, more than any real file of this size has"):
        parsed(f"[{value}{f',{value}' * 999_999}]".encode())


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('{"entries": %s, "version": "2.0"}', dump.read),
        ('{"graphs": %s}', post_graph.read_file),
        ('{"segments": [], "device_traces": %s}', lambda path: memory_snapshot.write_trace(path, Path(path + ".out"))),
        ('{"version": 1, "findings": %s}', lambda path: read_baseline(Path(path))),
    ],
)
def test_files_of_empty_lists_are_refused(text: str, read: Callable[[str], Any], tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text(text % f"[{'[],' * _COUNT}[]]")
    with pytest.raises(PerfToolError, match="lists and objects, more than any real file"):
        read(str(tmp_path / "rank0.json"))


def test_compilation_statistics_of_empty_objects_are_not_read() -> None:
    text = '[{"000000000": {"compilations": [%s{}]}}]' % ("{}," * _COUNT)
    reading = compilation_stats.read(text.encode())
    assert reading.compilations == ()
    assert "lists and objects, more than any real file" in reading.issues[0].message


def test_results_and_reports_of_empty_lists_are_not_read(tmp_path: Path) -> None:
    text = '{"completed": 1, "mean_ttft_ms": 2, "tool": {"name": "habana_perf_tool"}, "version": 2, "x": %s}'
    (tmp_path / "both.json").write_text(text % f"[{'[],' * _COUNT}[]]")
    reading = client_result.read(str(tmp_path / "both.json"))
    assert reading.results == ()
    assert [issue.kind for issue in reading.issues] == ["bad JSON"]
    # If read_saved parsed the file, it would reject the version with an error.
    assert read_saved(str(tmp_path / "both.json")) is None
