"""Progress without a terminal: an occasional line, and nothing for short work."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from perftool.commands import progress as module
from perftool.commands.progress import progress


def test_a_log_gets_a_line_at_intervals(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([0.0, 1.0, 11.0, 11.0, 12.0, 30.0, 30.0])
    # A clock for this module only, because other threads read the real one at the same time.
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    with progress() as show:
        assert show is not None
        for done in (1, 2 << 20, 3 << 20, 4 << 20):
            show("traces/run.json", done)

    said = ["habana_perf_tool: run.json  2.00 MiB", "habana_perf_tool: run.json  4.00 MiB"]
    assert capsys.readouterr().err.splitlines() == said


def test_quiet_prints_nothing() -> None:
    with progress(quiet=True) as show:
        assert show is None
