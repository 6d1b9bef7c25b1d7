"""The bar of ``benchmark``: what is being done, and how long the rest will take."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Advance:
    """Told of each stage; shows nothing without a bar."""

    def __init__(self, bar: Progress | None = None, task: TaskID | None = None) -> None:
        self._bar, self._task = bar, task

    def stage(self, name: str, stage: str) -> None:
        """What is being done for the benchmark ``name``."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=f"{name}: {stage}")

    @contextmanager
    def row(self) -> Iterator[None]:
        """A benchmark has ended: the bar stands aside while its row is printed."""
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
    """A bar on stderr for ``total`` benchmarks with the time left; none when ``quiet`` or where nobody watches."""
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
        # A row takes seconds: the speed of the last half minute would be that of one row.
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True, speed_estimate_period=600) as bar:
        yield Advance(bar, bar.add_task("", total=total))
