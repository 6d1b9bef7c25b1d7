"""Makes reports independent of the machine: paths become relative to the project."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perftool.model.inputs import InputFile
from perftool.model.report import Finding, Report
from perftool.readers.files.remote import is_url, shown_path

STDIN_NAME = "<stdin>"


def shown_paths(paths: Sequence[str], root: Path, stdin_name: str | None = None) -> dict[str, str]:
    """Map each path to the path to show: relative to ``root`` if inside it, otherwise relative to the common parent of
    all paths outside.

    Paths have forward slashes on every system. Standard input is shown as ``stdin_name``.
    """
    places = {path: os.path.realpath(path) for path in paths if path != STDIN_NAME and not is_url(path)}
    base = os.path.realpath(root)
    outside = [os.path.dirname(place) for place in places.values() if not _inside(place, base)]
    shared = os.path.commonpath(outside) if outside else base
    shown = {path: _relative(place, base if _inside(place, base) else shared) for path, place in places.items()}
    return {**{path: shown_path(path) for path in paths if is_url(path)}, **shown, STDIN_NAME: stdin_name or STDIN_NAME}


def make_portable(report: Report, shown: Mapping[str, str]) -> Report:
    """Replace every path in ``shown`` in the inputs, messages and evidence of ``report``."""
    # Longest first, because one path may be a prefix of another.
    order = dict(sorted(shown.items(), key=lambda pair: -len(pair[0])))
    return replace(
        report,
        inputs=tuple(_portable_input(read, order) for read in report.inputs),
        findings=tuple(_portable_finding(finding, order) for finding in report.findings),
    )


def file_of(finding: Finding, inputs: Sequence[InputFile]) -> str:
    """Return the path of the input to which ``finding`` is assigned: its own file; if it has none, the trace of its
    rank or of its first late rank; failing that, the first input."""
    if finding.path is not None:
        return finding.path
    traces = [read for read in inputs if read.kind == "trace"] or list(inputs)
    named = finding.late_ranks[:1] if finding.rank is None else [finding.rank]
    ranked = [read for read in traces if read.rank in named]
    return (ranked or traces)[0].path


def _inside(place: str, folder: str) -> bool:
    return place.startswith(folder.rstrip(os.sep) + os.sep)


def _relative(place: str, folder: str) -> str:
    return os.path.relpath(place, folder).replace(os.sep, "/")


def _portable_input(read: InputFile, shown: Mapping[str, str]) -> InputFile:
    issues = tuple(replace(issue, message=_replaced(issue.message, shown)) for issue in read.issues)
    return replace(read, path=shown.get(read.path, read.path), issues=issues)


def _portable_finding(finding: Finding, shown: Mapping[str, str]) -> Finding:
    return replace(
        finding,
        subject=_replaced(finding.subject, shown),
        message=_replaced(finding.message, shown),
        evidence={key: _portable_value(value, shown) for key, value in finding.evidence.items()},
        path=finding.path and shown.get(finding.path, finding.path),
    )


def _portable_value(value: Any, shown: Mapping[str, str]) -> Any:
    return _replaced(value, shown) if isinstance(value, str) else value


def _replaced(text: str, shown: Mapping[str, str]) -> str:
    for path, short in shown.items():
        text = text.replace(path, short)
    return text
