"""Records a server: its metrics page before and after, and the traces that its profiler writes."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perftool.errors import InputError, TerminatedError
from perftool.integrations.server.client import NoAnswerError, Server
from perftool.integrations.server.profile_folder import profile_folder
from perftool.output_file import write_errors_named
from perftool.readers.files.walk import walk
from perftool.readers.serving import metrics_page

_MOST_ALIKE = 10_000
_ENDINGS = (".pt.trace.json", ".pt.trace.json.gz", ".trace.json.gz")
# Some file systems store times only to the nearest two seconds.
_CLOCK_S = 2.0
# How long to wait for the server if the recording is abandoned.
_GIVEN_UP_S = 5.0


@dataclass(frozen=True)
class Recorded:
    """The ``traces`` and metrics ``pages`` of a recording. If either is incomplete, ``missing`` says why.

    ``idle`` means that, according to the pages, no token was generated during the recording.
    """

    traces: tuple[Path, ...]
    pages: tuple[Path, ...]
    missing: str | None
    idle: bool


def record_server(server: Server, seconds: float, folder: Path, profiles: Path | None) -> Recorded:
    """Profile ``server`` for ``seconds``. Save the metrics pages and, if found, the traces in ``folder``, which is new.
    ``profiles`` is the server's folder for traces, if the user named it. Ctrl-C ends the profile early. Raise
    InputError if the server has no profiler or does not answer.
    """
    before = server.metrics()
    start = time.time() - _CLOCK_S
    _profile(server, seconds)
    try:
        after = server.metrics()
    except InputError:
        after = None
    is_lone = bool(before) and not after
    # On its own, the page from before the recording would count as the recording's page, so it gets a name that is
    # ignored when the folder is read.
    first = "metrics_before.unused" if is_lone else "metrics_before.txt"
    pages = tuple(_saved(folder / name, page) for name, page in ((first, before), ("metrics_after.txt", after)) if page)
    written = profiles or (profile_folder(server.port) if _is_here(server.host) else None)
    traces = tuple(_taken(trace, written, folder) for trace in _new_traces(written, start)) if written else ()
    reasons = [] if traces else [_why_none(written, folder if pages else None)]
    if is_lone:
        reasons.append(
            f"the server sent no metrics page after the recording, so the page from before ({first}) is not used"
        )
    return Recorded(traces, pages, "; ".join(reasons) or None, _idle(before, after))


def _profile(server: Server, seconds: float) -> None:
    """Run the profiler of ``server`` for ``seconds``. If the recording is abandoned, stop the profiler, too."""
    started = False
    try:
        server.start_profile()
        started = True
        time.sleep(seconds)
    except (KeyboardInterrupt, NoAnswerError) as error:
        if not started or isinstance(error, TerminatedError):
            # An unanswered request may still start the profiler.
            with suppress(InputError):
                server.stop_profile(_GIVEN_UP_S)
            raise
    server.stop_profile()


def _idle(before: bytes | None, after: bytes | None) -> bool:
    if before is None or after is None:
        return False
    tokens = [metrics_page.read(page).pages[0].totals.get("output_tokens") for page in (before, after)]
    return tokens[0] is not None and tokens[0] == tokens[1]


def _saved(path: Path, content: bytes) -> Path:
    with write_errors_named(path), open(path, "xb") as file:
        file.write(content)
    return path


def _is_here(host: str) -> bool:
    """Whether ``host`` is an address of this machine, so that a socket can bind to it."""
    try:
        kind, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(kind, socket.SOCK_STREAM) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def _new_traces(folder: Path, start: float) -> list[Path]:
    """List the traces in ``folder`` written since ``start``, in seconds since 1970."""
    found = (Path(place, name) for place, _, names in walk(folder, []) for name in names if name.endswith(_ENDINGS))
    return sorted(trace for trace in found if _is_new(trace, start))


def _is_new(trace: Path, start: float) -> bool:
    """Whether ``trace`` is a regular file written since ``start``."""
    try:
        found = trace.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_mtime >= start


def _taken(trace: Path, written: Path, folder: Path) -> Path:
    """Link or copy ``trace`` into ``folder``, so that the recording is in one folder.

    Traces in different folders of ``written`` may have the same name.
    """
    name = "-".join(trace.relative_to(written).parts)
    numbered = (folder / (f"{number}-{name}" if number > 1 else name) for number in range(1, _MOST_ALIKE))
    try:
        return next(target for target in numbered if _copied(trace, target))
    except OSError as error:
        raise InputError(f"{trace}: cannot copy ({error.strerror or error})") from None
    except StopIteration:
        raise InputError(f"{trace}: cannot copy (too many traces have this name)") from None


def _copied(trace: Path, target: Path) -> bool:
    """Link or copy ``trace`` to ``target``. Return False if ``target`` exists. Raise OSError on failure."""
    try:
        os.link(trace, target)
    except FileExistsError:
        return False
    except OSError:
        try:
            # Unlike shutil.copy2, this follows no link at the target.
            with open(trace, "rb") as source, open(target, "xb") as copy:
                shutil.copyfileobj(source, copy)
        except FileExistsError:
            return False
        shutil.copystat(trace, target)
    return True


def _why_none(written: Path | None, folder: Path | None) -> str:
    if written is None:
        return (
            f"the server's trace folder is unknown: copy the traces into {folder or 'one folder'} and analyze that "
            "folder, or name the server's folder with --profile-folder"
        )
    return f"{written}: no new trace; does the server write its traces there?"
