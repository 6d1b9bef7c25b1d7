"""The Python door: reports and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike, fspath

from perftool.engine import analysis
from perftool.engine.ranks.schedule import Progress
from perftool.errors import InputError
from perftool.model.report import Report
from perftool.model.rule import Rule
from perftool.readers.files.discover import find_inputs
from perftool.reporters.notebook import render_notebook
from perftool.store.readings import read_text
from perftool.store.trace_store import TraceStore

Report.notebook_view = staticmethod(render_notebook)


def analyze(
    paths: str | PathLike[str] | Sequence[str | PathLike[str]],
    rules: Iterable[Rule] | None = None,
    progress: Progress | None = None,
    logs: Sequence[str | PathLike[str]] = (),
) -> Report:
    """Analyse ``paths`` (files, folders, globs; several are ranks of one run), with ``rules`` or the shipped pack.

    ``logs`` are logs, metrics files and configuration of the run; without them, those beside a trace are taken.
    Raises InputError when no file can be read; a file among others that cannot is a TRC000 finding.
    """
    several = [paths] if isinstance(paths, (str, PathLike)) else paths
    return analysis.analyze([fspath(path) for path in several], rules, progress, [fspath(log) for log in logs])


def open_trace(path: str | PathLike[str], *, logs: Sequence[str | PathLike[str]] = ()) -> TraceStore:
    """Open a trace (a file, a folder of ranks, or a glob) together with the logs that lie beside it.

    ``open_trace(path).frame("gaps")`` is a table as a pandas DataFrame; use it as a context manager to give
    temporary files up early. Raises InputError when nothing can be read.
    """
    inputs = find_inputs([fspath(path)], [fspath(log) for log in logs])
    store = TraceStore.for_files(inputs.traces)
    try:
        for trace in inputs.traces:
            store.add_trace(trace)
        for text in inputs.texts:
            store.add_reading(read_text(text))
    except InputError:
        store.close()
        raise
    return store
