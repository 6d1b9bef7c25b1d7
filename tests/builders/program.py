"""Runs the program in process, as a shell would."""

from __future__ import annotations

import pytest

from perftool import cli


class Run:
    """The result of a run of the program."""

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
