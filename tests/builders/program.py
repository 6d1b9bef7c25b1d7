"""Runs the program inside the test process, with the output and exit code that a shell would see."""

from __future__ import annotations

import pytest

from perftool import cli


class Run:
    """Runs the program when called, returns its exit code and keeps its output."""

    def __init__(self, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capture, self._patch = capfdbinary, monkeypatch
        self.out = self.err = ""

    def __call__(self, *arguments: str) -> int:
        self._patch.setattr("sys.argv", ["habana_perf_tool", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = self._capture.readouterr()
        self.out, self.err = captured.out.decode(), captured.err.decode()
        return int(ended.value.code or 0)
