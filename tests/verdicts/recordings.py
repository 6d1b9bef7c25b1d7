"""Recorded traces from outside the repository, in the folder PERFTOOL_VERDICT_TRACES. Each is analysed once."""

from __future__ import annotations

import gzip
import json
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
    """Return the path of the recorded trace ``name``, which is a folder if there are several ranks."""
    return str(FOLDER / name if (FOLDER / name).is_dir() else FOLDER / f"{name}.json.gz")


@cache
def recording(name: str) -> Recording:
    """Return the analysis of the recorded trace ``name``."""
    with analysed(find_inputs([path_of(name)]), load_pack(builtin_folder())) as run:
        return Recording(run.report, run.store.rows("op_efficiency"))


def write_with_late_clock(folder: Path, into: Path) -> None:
    """Write the ranks of ``folder`` as if the clock of the second one were 7 ms ahead. Clocks of hosts differ by
    milliseconds, so sentences must follow from the work rather than from the clocks.
    """
    for number, path in enumerate(sorted(folder.glob("*.json.gz"))):
        whole = json.loads(gzip.decompress(path.read_bytes()))
        late = 7_000 if number == 1 else 0
        moved = [{**e, "ts": e["ts"] + late} if "ts" in e and e.get("ph") != "M" else e for e in whole["traceEvents"]]
        (into / path.stem).write_text(json.dumps({**whole, "traceEvents": moved}))


def sentences(report: Report) -> list[Any]:
    """Return the verdict and the findings of ``report``."""
    verdict = report.verdict
    return [verdict.headline, verdict.below, [(f.code, f.subject, f.message) for f in report.findings]]
