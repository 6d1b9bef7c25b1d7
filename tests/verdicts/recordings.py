"""Recorded traces from outside the repository, in the folder PERFTOOL_VERDICT_TRACES. Each is analysed once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from perftool.engine.analysis import analysed
from perftool.engine.rules.pack import builtin_folder, load_pack
from perftool.model.report import Report
from perftool.readers.discover import find_inputs

FOLDER = Path(os.environ.get("PERFTOOL_VERDICT_TRACES", "/nowhere"))
# Traces of a single rank. Runs of several ranks are folders.
FILES = [path.name.removesuffix(".json.gz") for path in sorted(FOLDER.glob("*.json.gz"))]


@dataclass(frozen=True)
class Recording:
    """``ops``: the rows of the table op_efficiency."""

    report: Report
    ops: list[dict[str, Any]]


def path_of(name: str) -> str:
    """The path of the recorded trace ``name``, which is a folder if there are several ranks."""
    return str(FOLDER / name if (FOLDER / name).is_dir() else FOLDER / f"{name}.json.gz")


@cache
def recording(name: str) -> Recording:
    """The analysis of the recorded trace ``name``."""
    with analysed(find_inputs([path_of(name)]), load_pack(builtin_folder())) as run:
        return Recording(run.report, run.store.rows("op_efficiency"))
