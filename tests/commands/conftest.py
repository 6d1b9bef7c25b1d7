"""Runs the tests of commands without any configuration, repository or CI variables around them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from builders.program import Run
from builders.remembered import remember


@pytest.fixture(autouse=True)
def _outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration, repository or CI around the run; the caller's environment does not matter."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("GITHUB_", "CI_", "HABANA_PERF_TOOL_")):
            monkeypatch.delenv(name)


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(capfdbinary, monkeypatch)


_ANSWERS: dict[Any, Any] = {}


@pytest.fixture(autouse=True)
def _remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of commands analyse each input once."""
    remember(monkeypatch, _ANSWERS)
