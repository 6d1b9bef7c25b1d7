"""Runs a script with ``record``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from warm_python import warm_python


def run(
    folder: Path, source: str, *options: str, report: bool = False, fresh: bool = False
) -> subprocess.CompletedProcess[str]:
    """Record ``source``, in a Python started from scratch if ``fresh``."""
    (folder / "script.py").write_text(source)
    command = [sys.executable, "-m", "perftool", "record", *([] if report else ["--no-report"]), *options]
    python = [sys.executable] if fresh or "torch" not in source else warm_python()
    return subprocess.run([*command, "--", *python, "script.py"], cwd=folder, capture_output=True, text=True)
