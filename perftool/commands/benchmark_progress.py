"""The progress bar of ``benchmark``: the current stage, and the remaining time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Advance:
    """Shows the progress of benchmarks in ``bar``, if there is one."""

    def __init__(self, bar: Progress | None = None, task: TaskID | None = None) -> None:
        self._bar, self._task = bar, task

    def stage(self, name: str, stage: str) -> None:
        """Show the current stage of the benchmark ``name``."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=f"{name}: {stage}")

    @contextmanager
    def row(self) -> Iterator[None]:
        """Count a finished benchmark, and hide the bar while its row is printed."""
        if self._bar is None or self._task is None:
            yield
            return
        self._bar.update(self._task, advance=1)
        self._bar.stop()
        try:
            yield
        finally:
            self._bar.start()


@contextmanager
def progress(total: int, quiet: bool) -> Iterator[Advance]:
    """Show a progress bar for ``total`` benchmarks on stderr, if stderr is a terminal and not ``quiet``."""
    if quiet or not sys.stderr.isatty():
        yield Advance()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"),
        # The default window of 30 s would average over only one or two benchmarks.
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True, speed_estimate_period=600) as bar:
        yield Advance(bar, bar.add_task("", total=total))
