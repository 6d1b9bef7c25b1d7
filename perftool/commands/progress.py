"""Shows progress on stderr: on a terminal as one changing line, otherwise as a new line every ten seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from perftool.reporters.escape import one_line
from perftool.units import format_bytes

_PATIENCE_S = 1.0
_LOG_EVERY_S = 10.0


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str, int], None] | None]:
    """Yield a function that shows the current stage and the bytes done, or None if ``quiet`` is set."""
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.status import Status
    from rich.text import Text

    status = Status("", console=Console(stderr=True))
    start = time.monotonic()

    def show(stage: str, done: int) -> None:
        status.update(Text(_line(stage, done)))
        if time.monotonic() - start > _PATIENCE_S:
            status.start()

    try:
        yield show
    finally:
        status.stop()


def _lines() -> Callable[[str, int], None]:
    last = time.monotonic()

    def show(stage: str, done: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _LOG_EVERY_S:
            last = time.monotonic()
            print(f"habana_perf_tool: {_line(stage, done)}", file=sys.stderr, flush=True)  # noqa: T201

    return show


def _line(stage: str, done: int) -> str:
    return one_line(f"{Path(stage).name}  {format_bytes(done)}" if done else stage)
