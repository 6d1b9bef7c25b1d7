"""Saves the recordings of all our recorders: ``perftool.profile``, Lightning's profiler, the Trainer's callback and
``record``. PyTorch's trace is written first, because our additions may fail.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from perftool.errors import PerfToolError, is_interrupt
from perftool.integrations.activities import torch_profiler
from perftool.integrations.call_lines import NO_CALLS, Calls, calls_of, with_lines
from perftool.integrations.own_warnings import warn
from perftool.model.own_code import INSTALLED_KEY
from perftool.model.recorded_on import RECORDED_KEY
from perftool.output_file import gzipped, whole_file

Made = TypeVar("Made")
Facts = Mapping[str, Any]

# A place for a trace whose folder is full.
_SHARED_MEMORY = Path("/dev/shm")
_ELSEWHERE = "perftool-trace-"
# Most traces need less space than this. If less is free, use the disk with the most free space right away.
_PLENTY_BYTES = 1 << 30
_PIECE_BYTES = 4 << 20
_EVENT_START = b"\n  {"
_HEAD = re.compile(rb"\s*\{")


@dataclass(frozen=True)
class Additions:
    """Our additions to a trace: the source line of each call, and ``facts`` about the machine and the recording."""

    calls: Calls = NO_CALLS
    facts: Facts | None = None


def save_trace(profiler: torch_profiler.profile, path: Path, facts: Callable[[Path], Facts] | None = None) -> Path:
    """Save what ``profiler`` recorded, and return the file. If all goes well, it is ``path``, which ends in
    ``.json.gz``.

    The plain trace is written first, under the same name without ``.gz``. Then the lines of the calls (if stacks were
    recorded) and what ``facts`` returns for the plain trace are added. The result is compressed into a new file, which
    replaces the plain one once it is complete. If one of these steps fails, a warning says what is missing, and the
    trace is saved without it. If the folder is full, the trace goes to the temporary folder, and a warning says so.
    Raise OSError when nothing could be written, and PerfToolError if another profiler ended the recording.
    """
    start_ns = getattr(getattr(profiler.profiler, "kineto_results", None), "trace_start_ns", None)
    # PyTorch crashes when it writes such results.
    if start_ns is not None and not start_ns():
        raise PerfToolError("another profiler ended the recording, so there is nothing to save")
    plain = _export(profiler, path)
    calls = _extra("the lines of its calls", lambda: calls_of(profiler)) or NO_CALLS
    added_facts = _extra("the facts about the machine", partial(facts, plain)) if facts else None
    folders = dict.fromkeys((path.parent, plain.parent))
    for additions, missing in ((Additions(calls, added_facts), "perftool's additions"), (Additions(), "compression")):
        for folder in folders:
            with _may_fail(missing if folder == plain.parent else ""):
                return _packed(plain, folder / path.name, additions)
    return plain


@contextmanager
def _may_fail(missing: str) -> Iterator[None]:
    """Turn an error into a warning that the trace is saved without ``missing``. Do not warn if ``missing`` is empty."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the trace is saved already
        if is_interrupt(error):
            raise KeyboardInterrupt from None
        if missing:
            reason = f"{type(error).__name__}: {error}".removesuffix(": ")
            warn(f"perftool: the trace is saved without {missing} ({reason})", stacklevel=4)


def _extra(what: str, made: Callable[[], Made]) -> Made | None:
    """Call ``made`` and return its result. If it raises an error, warn and return None."""
    found: list[Made] = []
    with _may_fail(what):
        found.append(made())
    return found[0] if found else None


def _export(profiler: torch_profiler.profile, path: Path) -> Path:
    """Write the plain trace to the folder of ``path``, or to another folder if that one is full. Return the file.

    PyTorch can write a recording only once. If writing fails, PyTorch prints an error, raises nothing, and leaves a
    file that ends in ``.tmp``. Newer versions can write again with their exporter in Python.
    """
    with _new_folders() as folder_in:
        return _written(profiler, path, folder_in)


def _written(profiler: torch_profiler.profile, path: Path, folder_in: Callable[[Path], Path]) -> Path:
    name = path.name.removesuffix(".gz")
    places = sorted((path.parent, *_other_places()), key=_free_bytes, reverse=True)
    first = path.parent if _free_bytes(path.parent) > _PLENTY_BYTES else places[0]
    cut: list[Path] = []
    for place, options in ((first, {}), *((place, {"use_python_export": True}) for place in places)):
        try:
            folder = place if place == path.parent else folder_in(place)
        except OSError:
            continue
        plain = folder / name
        # The file shows whether the export worked; PyTorch often raises nothing if it did not.
        with suppress(Exception):
            profiler.export_chrome_trace(str(plain), **options)
        if _is_whole(plain):
            _remove(cut)
            if folder != path.parent:
                warn(f"perftool: {_why_not(path.parent)}; the trace goes to {plain}", stacklevel=3)
            return plain
        cut += [file for file in (plain, Path(f"{plain}.tmp")) if file.is_file() and file not in cut]
    cut.sort(key=lambda file: file.stat().st_size)
    if not cut or not cut[-1].stat().st_size:
        _remove(cut)
        raise OSError(_why_not(path.parent))
    longest = cut.pop()
    _remove(cut)
    plain = longest.with_name(name)
    os.replace(longest, plain)
    lost = f"the trace is truncated; the part that was written is in {plain}"
    warn(f"perftool: {_why_not(path.parent)}; {lost}", stacklevel=3)
    return plain


def _other_places() -> Iterator[Path]:
    """Yield folders for a trace whose own folder is full."""
    with suppress(OSError):
        yield Path(tempfile.gettempdir())
    yield _SHARED_MEMORY


@contextmanager
def _new_folders() -> Iterator[Callable[[Path], Path]]:
    """Yield a function that creates one new folder in each place. Then remove the folders that are still empty."""
    made: dict[Path, Path] = {}

    def folder_in(place: Path) -> Path:
        if place not in made:
            made[place] = Path(tempfile.mkdtemp(prefix=_ELSEWHERE, dir=place))
        return made[place]

    try:
        yield folder_in
    finally:
        for folder in made.values():
            with suppress(OSError):
                folder.rmdir()


def _free_bytes(folder: Path) -> int:
    """Return how many bytes can still be written to ``folder``, or 0 if it is not writable."""
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"0")
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def _is_whole(file: Path) -> bool:
    """Whether ``file`` exists and ends like a trace."""
    try:
        with open(file, "rb") as opened:
            opened.seek(-min(64, file.stat().st_size), os.SEEK_END)
            return opened.read().rstrip().endswith((b"}", b"]"))
    except OSError:
        return False


def _remove(files: Iterable[Path]) -> None:
    """Remove ``files``, which need not exist, and folders that we created for them, if these are now empty."""
    for file in files:
        file.unlink(missing_ok=True)
        if file.parent.name.startswith(_ELSEWHERE):
            with suppress(OSError):
                file.parent.rmdir()


def _why_not(folder: Path) -> str:
    """Explain why nothing more can be written to ``folder``."""
    if not folder.is_dir():
        return f"{folder} no longer exists"
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_PIECE_BYTES))
    except OSError as error:
        return f"{folder} is not writable ({error.strerror or error})"
    return f"{folder} has too little space for the trace, or the trace exceeds a limit on file sizes"


def _packed(plain: Path, target: Path, additions: Additions) -> Path:
    """Compress ``plain`` with ``additions`` into ``target``, then remove ``plain``."""
    replaced = plain if target.parent == plain.parent else target
    with open(plain, "rb") as source, whole_file(replaced) as place, open(place, "wb") as packed:
        packed.writelines(gzipped(with_additions(event_pieces(source.read), additions)))
        packed.flush()
    if target.parent == plain.parent:
        os.replace(plain, target)
    else:
        _remove([plain])
    return target


def event_pieces(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yield the output of ``read`` in large pieces, each of which ends after an event."""
    rest = b""
    while data := read(_PIECE_BYTES):
        data = rest + data
        cut = data.rfind(_EVENT_START)
        at = cut if cut > 0 else len(data) if len(data) > 4 * _PIECE_BYTES else 0
        if at:
            yield data[:at]
        rest = data[at:]
    if rest:
        yield rest


def with_additions(pieces: Iterable[bytes], additions: Additions) -> Iterator[bytes]:
    """Add ``additions`` to the trace in ``pieces``: facts at the top level, and the line of each call."""
    top: dict[str, Any] = {}
    if additions.facts:
        top[RECORDED_KEY] = additions.facts
    if additions.calls is not NO_CALLS:
        top[INSTALLED_KEY] = sorted(additions.calls.installed)
    text = "".join(f'\n    "{key}": {json.dumps(value)},' for key, value in top.items()).encode()
    for number, piece in enumerate(with_lines(pieces, additions.calls)):
        head = _HEAD.match(piece) if number == 0 and text else None
        yield piece[: head.end()] + text + piece[head.end() :] if head else piece
