"""Progress on stderr: only on a terminal, only for work that takes more than about a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from perftool.units import format_bytes

_PATIENCE_S = 1.0


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str, int], None] | None]:
    """Yields a function to call with (what is being done, bytes done), or None when nobody would see it."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.status import Status

    status = Status("", console=Console(stderr=True))
    begun = time.monotonic()

    def show(stage: str, done: int) -> None:
        name = Path(stage).name if done else stage
        status.update(f"{name}  {format_bytes(done)}" if done else name)
        if time.monotonic() - begun > _PATIENCE_S:
            status.start()

    try:
        yield show
    finally:
        status.stop()
