"""Accepted findings: a file of fingerprints, written once and subtracted from every later run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson

from perftool import __version__
from perftool.engine.rules.fingerprint import fingerprint
from perftool.errors import BaselineError
from perftool.model.lint import BaselineEntry, BaselineState, LintFinding
from perftool.readers.files.small_file import read_small
from perftool.readers.text.bounded_json import parsed

VERSION = 1
# A baseline cannot accept unreadable inputs, crashed rules, exceeded budgets, or budgets without a value.
_NEVER_ACCEPTED = ("TRC000", "TRC001", "BUD101", "BUD102")
_MOST = 64 << 20
_TYPES = {"fingerprint": str, "code": str, "file": str, "subject": str, "message": str, "count": int}


def read_baseline(path: Path) -> tuple[BaselineEntry, ...]:
    """Read the baseline at ``path``. Raise BaselineError if it is missing, corrupt or of another version."""
    try:
        data = parsed(read_small(path, _MOST))
    except OSError as error:
        raise BaselineError(f"{path}: the baseline cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise BaselineError(f"{path}: the baseline is not valid JSON ({error})") from None
    version = data.get("version") if isinstance(data, dict) else None
    if not isinstance(version, int):
        raise BaselineError(
            f"{path}: not a baseline, because it has no version number; write one with --write-baseline"
        )
    if version != VERSION:
        text = f"has version {version}, not {VERSION}; rewrite it with --write-baseline"
        raise BaselineError(f"{path}: the baseline {text}")
    entries = data.get("findings")
    if not isinstance(entries, list):
        raise BaselineError(f"{path}: key findings must be a list")
    return tuple(_entry(path, at, entry) for at, entry in enumerate(entries))


def render_baseline(findings: Iterable[LintFinding]) -> bytes:
    """Render a baseline that accepts ``findings``: sorted JSON without times, hosts or absolute paths."""
    groups: dict[str, list[LintFinding]] = {}
    for found in findings:
        if acceptable(found):
            groups.setdefault(found.finding.fingerprint, []).append(found)
    entries = sorted((_accepted(group) for group in groups.values()), key=_order)
    header = {"version": VERSION, "tool": {"name": "habana_perf_tool", "version": __version__}}
    data = {**header, "findings": [asdict(entry) for entry in entries]}
    return orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def subtract(
    findings: Sequence[LintFinding], entries: Sequence[BaselineEntry], codes: Iterable[str]
) -> tuple[list[LintFinding], list[BaselineEntry]]:
    """Mark the accepted ``findings``. Return all findings, and the stale entries.

    The baseline has a count per fingerprint: that many findings are accepted, in the given order. An entry whose rule
    is not in ``codes`` was not checked, so it is not stale.
    """
    left = Counter({entry.fingerprint: entry.count for entry in entries})
    marked = []
    for found in findings:
        known = next((one for one in _fingerprints(found) if left[one] > 0), None) if acceptable(found) else None
        if known is not None:
            left[known] -= 1
        state: BaselineState = "new" if known is None else "unchanged"
        marked.append(replace(found, finding=replace(found.finding, suppressed=known is not None), baseline=state))
    seen = {one for found in findings for one in _fingerprints(found)}
    looked_for = set(codes)
    stale = [entry for entry in entries if entry.fingerprint not in seen and entry.code in looked_for]
    return marked, stale


def _fingerprints(found: LintFinding) -> tuple[str, str]:
    """Return the fingerprint of ``found``, and its path-based fingerprint, which a baseline may contain instead."""
    finding = found.finding
    return finding.fingerprint, fingerprint(finding.code, finding.subject, found.file)


def acceptable(found: LintFinding) -> bool:
    """Whether a baseline may accept ``found``."""
    return found.finding.code not in _NEVER_ACCEPTED


def _accepted(group: Sequence[LintFinding]) -> BaselineEntry:
    first = min(group, key=lambda found: (found.file, found.finding.subject, found.finding.message))
    finding = first.finding
    return BaselineEntry(finding.fingerprint, finding.code, first.file, finding.subject, finding.message, len(group))


def _order(entry: BaselineEntry) -> tuple[str, ...]:
    return (entry.file, entry.code, entry.subject, entry.fingerprint)


def _entry(path: Path, at: int, entry: Any) -> BaselineEntry:
    place = f"{path}: key findings[{at}]"
    if not isinstance(entry, dict) or set(entry) != set(_TYPES):
        raise BaselineError(f"{place} must have the keys {', '.join(_TYPES)}")
    for key, kind in _TYPES.items():
        if not isinstance(entry[key], kind) or isinstance(entry[key], bool):
            raise BaselineError(f"{place}.{key} must be a {'string' if kind is str else 'number'}")
    return BaselineEntry(**entry)
