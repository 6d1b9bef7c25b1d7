"""The generator of large traces repeats a whole trace, gives each repetition its own times and ids, and keeps every
digit of the times."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SOURCE = {
    "schemaVersion": 1,
    "distributedInfo": {"rank": 3, "pg": [{"ranks": [0]}]},
    "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "ts": 0, "args": {"name": "100 %"}},
        {"ph": "X", "name": "ProfilerStep#5", "pid": 7, "tid": 7, "ts": 1000, "dur": 100},
        {"ph": "X", "cat": "cuda_runtime", "name": "launch", "pid": 7, "tid": 7, "ts": 1010, "dur": 5,
         "args": {"correlation": 4, "External id": 0, "share": "50 %s"}},
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 1, "ts": 1020, "dur": 50,
         "args": {"correlation": 4}},
        {"ph": "s", "cat": "ac2g", "name": "flow", "id": 4, "pid": 7, "tid": 7, "ts": 1010},
    ],
}  # fmt: skip


@pytest.fixture
def grow_trace(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    import grow_trace

    return grow_trace


def grown(module: ModuleType, folder: Path, text: str, megabytes: float) -> dict[str, Any]:
    (folder / "source.json").write_text(text, encoding="utf-8")
    size = module.grow(folder / "source.json", folder / "target.json", megabytes)
    target = (folder / "target.json").read_bytes()

    assert len(target) == size
    return json.loads(target)


def test_one_repetition_is_the_source(grow_trace: ModuleType, tmp_path: Path) -> None:
    assert grown(grow_trace, tmp_path, json.dumps(SOURCE), 0) == SOURCE


def test_a_repetition_is_shifted_in_time_steps_and_ids(grow_trace: ModuleType, tmp_path: Path) -> None:
    grown(grow_trace, tmp_path, json.dumps(SOURCE), 0)
    once = (tmp_path / "target.json").stat().st_size

    events = grown(grow_trace, tmp_path, json.dumps(SOURCE), 1.6 * once / 1e6)["traceEvents"]

    # The source takes 100 us, and a pause of 1000 us follows, so the copy starts 1100 us after the source starts.
    assert events[:5] == SOURCE["traceEvents"]
    assert events[5:] == [
        {"ph": "X", "name": "ProfilerStep#6", "pid": 7, "tid": 7, "ts": 2100, "dur": 100},
        {"ph": "X", "cat": "cuda_runtime", "name": "launch", "pid": 7, "tid": 7, "ts": 2110, "dur": 5,
         "args": {"correlation": 9, "External id": 0, "share": "50 %s"}},
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 1, "ts": 2120, "dur": 50,
         "args": {"correlation": 9}},
        {"ph": "s", "cat": "ac2g", "name": "flow", "id": 9, "pid": 7, "tid": 7, "ts": 2110},
    ]  # fmt: skip


def test_times_keep_every_digit(grow_trace: ModuleType, tmp_path: Path) -> None:
    event = '{"ph": "X", "name": "op", "pid": 1, "tid": 1, "ts": 1790857026000123.457, "dur": 1.25}'

    grown(grow_trace, tmp_path, f"[{event}]", 0.0003)
    text = (tmp_path / "target.json").read_text(encoding="utf-8")

    assert '"ts": 1790857026000123.457' in text
    assert '"ts": 1790857026001124.457' in text


def test_the_size_is_reached_with_whole_repetitions(grow_trace: ModuleType, tmp_path: Path) -> None:
    grown(grow_trace, tmp_path, json.dumps(SOURCE), 0.1)

    assert (tmp_path / "target.json").stat().st_size == pytest.approx(100_000, rel=0.02)
