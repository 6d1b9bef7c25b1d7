"""Runs the tests of commands without configuration files, a repository or CI variables."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from builders.program import Run


@pytest.fixture(autouse=True)
def _outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty folder, without configuration files, a repository or CI variables, whatever the caller's
    environment.
    """
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("GITHUB_", "CI_", "HABANA_PERF_TOOL_")):
            monkeypatch.delenv(name)


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(capfdbinary, monkeypatch)


@pytest.fixture
def anew() -> None:
    """Do not reuse earlier analyses, for tests that compare analyses or change how they work."""


@pytest.fixture(autouse=True)
def _remembered(request: pytest.FixtureRequest) -> None:
    if "anew" not in request.fixturenames:
        request.getfixturevalue("remembered")
