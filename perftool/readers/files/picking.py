"""Picks the traces to analyse from a folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

from perftool.readers.files.duplicates import without_duplicates
from perftool.readers.files.runs import Chosen, is_recording, newest_run


@dataclass(frozen=True)
class Wanted:
    """Selects files of a folder: the files of ``run``, of the newest run, or of all runs. Leaves out files that match
    ``exclude``."""

    exclude: tuple[str, ...] = ()
    run: str | None = None
    all: bool = False

    def allows(self, file: str) -> bool:
        return not is_excluded(file, self.exclude)

    def pick(self, folder: str, traces: Sequence[str]) -> Chosen:
        """The selected ``traces`` of ``folder``, with those set aside as their duplicates."""
        if self.all:
            return Chosen(tuple(traces))
        if self.run is not None:
            return newest_run(folder, traces, self.run)
        # The names that a profiler's handler gives are unique, so only other files may be duplicates.
        named = [trace for trace in traces if is_recording(trace)]
        kept, aside = without_duplicates([trace for trace in traces if trace not in named])
        return replace(newest_run(folder, sorted([*named, *kept]), self.run), aside=tuple(aside))


def is_excluded(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(path, pattern) or fnmatch(Path(path).name, pattern) for pattern in patterns)
