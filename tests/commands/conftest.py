"""Runs the tests of commands without any configuration, repository or CI variables around them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from builders.program import Run


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


@pytest.fixture
def anew() -> None:
    """Disables the memory of analyses, for tests that compare analyses or change what an analysis does."""


@pytest.fixture(autouse=True)
def _remembered(request: pytest.FixtureRequest) -> None:
    if "anew" not in request.fixturenames:
        request.getfixturevalue("remembered")
