"""Runs a script with ``record``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run(folder: Path, source: str, *options: str, report: bool = False) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(source)
    command = [sys.executable, "-m", "perftool", "record", *([] if report else ["--no-report"]), *options]
    return subprocess.run([*command, "--", sys.executable, "script.py"], cwd=folder, capture_output=True, text=True)
