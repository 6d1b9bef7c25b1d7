"""Reads summary files from ``analyze --summary-jsonl``: one JSON line per run, and one per rank."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from perftool.errors import InputError
from perftool.model.trend import LINE_VERSION, History, RunLine
from perftool.readers.files.finished import FileState
from perftool.readers.files.stream import ByteStream
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.json_values import number
from perftool.readers.text.unique_keys import decoder_of_unique

# A line is about 2 kB long. The limit bounds the memory for files that are not summaries.
_LONGEST = 1 << 16
# Larger than any metric of a run.
_LARGEST = 1e30


def read_history(path: str) -> History:
    """Read the runs and ranks in the summary file ``path`` ('-' is stdin), and count unreadable lines. Damaged
    compression counts as one more unreadable line.

    Raise InputError if the file cannot be opened or contains no summary.
    """
    lines: list[RunLine] = []
    damaged = intact = 0
    with ByteStream(path) as stream:
        for text in _lines(stream.blocks()):
            line = _run_line(text)
            lines += [line] if line else []
            damaged += line is None
            intact = intact + 1 if line else 0
        cut = bool(stream.issues)
    if not lines:
        raise InputError(f"{path}: no run summaries; analyze TRACE --summary-jsonl FILE writes them")
    return History(tuple(lines), damaged + cut, 0 if cut else intact)


def read_done(path: str) -> list[FileState]:
    """Return the traces of a watched folder that the summary file ``path`` already lists, or none if there is no such
    file.
    """
    if not Path(path).exists():
        return []
    with ByteStream(path) as stream:
        return [state for text in _lines(stream.blocks()) if (state := _file_of(text))]


def _file_of(text: bytes) -> FileState | None:
    try:
        found = orjson.loads(text) if len(text) <= _LONGEST else None
    except orjson.JSONDecodeError:
        return None
    return FileState.from_json(found.get("file")) if isinstance(found, dict) else None


def require_summaries(path: str) -> None:
    """Raise InputError if ``path`` is a file with content but without summaries."""
    target = Path(path)
    if target.is_file() and target.stat().st_size:
        try:
            read_history(path)
        except InputError:
            raise InputError(f"{path}: contains lines other than run summaries; use another file") from None


def _lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines that are not blank, each cut to ``_LONGEST`` + 1 bytes."""
    rest = b""
    for block in blocks:
        first, *others = block.split(b"\n")
        rest = (rest + first)[: _LONGEST + 1]
        for line in others:
            if rest.strip():
                yield rest
            rest = line[: _LONGEST + 1]
    if rest.strip():
        yield rest


def _run_line(text: bytes) -> RunLine | None:
    """Return the summary in a line, or None if the line is damaged or was not written by this program."""
    tally = IssueTally()
    try:
        found = orjson.loads(text) if len(text) <= _LONGEST else None
        if not isinstance(found, dict) or found.get("version") != LINE_VERSION:
            return None
        decoder_of_unique(tally).decode(text.decode())
    except (ValueError, RecursionError):
        return None
    if tally.issues():
        return None
    rank, world, codes = found.get("rank"), found.get("world_size"), found.get("findings", [])
    # Earlier versions of the program did not write these keys.
    lost = found.get("lost", 0)
    per_step, lost_kernels = found.get("recorded_per_step_ms"), found.get("lost_kernels_ratio")
    warm_up, with_warm_up = found.get("warm_up_steps"), found.get("with_warm_up_ms")
    metrics, iterations = _metrics(found.get("metrics")), _metrics(found.get("iteration_ms", {}))
    whole = (
        all(isinstance(found.get(key), str) for key in ("time", "name"))
        and all(
            isinstance(found.get(key, ""), str) for key in ("origin", "recorded", "folder", "steps_from", "step_unit")
        )
        and isinstance(found.get("device"), str | None)
        and all(value is None or type(value) is int for value in (rank, world, warm_up))
        and all(map(_possible, (per_step, with_warm_up, warm_up, lost_kernels)))
        and type(lost) is int
        and lost >= 0
        and isinstance(codes, list)
        and all(isinstance(code, str) for code in codes)
    )
    if not whole or metrics is None or iterations is None:
        return None
    return RunLine(
        found["time"], found["name"], found.get("device"), world, metrics, tuple(codes), rank, found.get("origin", ""),
        found.get("recorded", ""), found.get("folder", ""), lost,
        found.get("steps_from", ""), found.get("step_unit", ""), per_step, lost_kernels,
        warm_up, with_warm_up, iterations,
    )  # fmt: skip


def _possible(value: object) -> bool:
    """Whether ``value`` is None, or a plausible number for a metric, small enough for its square to be finite."""
    return value is None or number(value, _LARGEST, signed=True) is not None


def _metrics(found: Any) -> dict[str, float | None] | None:
    """Return ``found`` if it is a dict whose values are numbers or None; otherwise, return None."""
    if not isinstance(found, dict):
        return None
    return found if all(map(_possible, found.values())) else None
