"""Picks the traces to analyse from a folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from perftool.readers.files.duplicates import without_duplicates
from perftool.readers.files.globs import is_named_like
from perftool.readers.files.runs import NEWEST, Chosen, is_recording, newest_run


@dataclass(frozen=True)
class Wanted:
    """Which files to select from a folder: those of ``run``, of the newest run, or of all runs, but none that match
    ``exclude``."""

    exclude: tuple[str, ...] = ()
    run: str | None = None
    all: bool = False

    def allows(self, file: str) -> bool:
        return not is_excluded(file, self.exclude)

    def pick(self, folder: str, traces: Sequence[str]) -> Chosen:
        """Select from the ``traces`` in ``folder``, and set duplicates aside."""
        if self.all:
            return Chosen(tuple(traces))
        if self.run not in (None, NEWEST):
            return newest_run(folder, traces, self.run)
        # A profiler's handler generates unique names, so only other files can be duplicates.
        named = [trace for trace in traces if is_recording(trace)]
        kept, aside = without_duplicates([trace for trace in traces if trace not in named])
        return replace(newest_run(folder, sorted([*named, *kept]), self.run), aside=tuple(aside))


def is_excluded(path: str, patterns: Iterable[str]) -> bool:
    """Whether one of ``patterns`` matches the path of a file or its name."""
    return is_named_like(path, tuple(patterns))
