"""The Python door to the tables."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath

from perftool.errors import InputError
from perftool.readers.discover import find_inputs
from perftool.store.readings import read_text
from perftool.store.trace_store import TraceStore


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
