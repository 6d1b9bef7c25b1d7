"""The Python API: reports and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from perftool.engine import analysis
from perftool.engine.ranks.schedule import Progress
from perftool.engine.rules.pack import shipped_rules
from perftool.engine.what_if import parse_scale, parse_without, rules_named, what_if
from perftool.errors import QueryError
from perftool.model.inputs import InputFile
from perftool.model.report import Report
from perftool.model.rule import Rule
from perftool.model.what_if import WhatIf
from perftool.readers.discover import find_inputs
from perftool.reporters.notebook import render_notebook
from perftool.store.catalog import catalog

if TYPE_CHECKING:
    import pandas as pd

    from perftool.store.trace_store import TraceStore

Report.notebook_view = staticmethod(render_notebook)


class Trace:
    """The tables of a trace, or of all ranks of a run, as returned by ``open_trace``. Use it as a context manager.

    Times are integers in ns. Missing values are NULL, which becomes NA or NaN in a DataFrame. Tables are built on first
    use.
    """

    def __init__(self, store: TraceStore, open_until: ExitStack) -> None:
        self._store = store
        self._open_until = open_until
        self._closed = False

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        paths = [read.path for read in (*self._store.inputs, *(part.as_input() for part in self._store.readings))]
        return f"<Trace of {paths[0]}{f' and {len(paths) - 1} more' if len(paths) > 1 else ''}>"

    def _repr_html_(self) -> str | None:
        """Return the report as HTML, for notebooks, or None after ``close``."""
        return None if self._closed else self._report._repr_html_()

    @cached_property
    def _report(self) -> Report:
        """The report with the shipped rules, built on first use."""
        return analysis.report_on(self._store, shipped_rules())

    @property
    def inputs(self) -> tuple[InputFile, ...]:
        """The files that were read, with their dropped or repaired parts as issues, and the unreadable files."""
        return (*self._store.inputs_with_issues(), *self._store.unreadable)

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables for ``frame`` and ``query``. docs/tables.md describes the tables."""
        return tuple(table.name for table in catalog().values() if table.public)

    def frame(self, name: str) -> pd.DataFrame:
        """Return the table ``name`` as a pandas DataFrame. Raise QueryError for an unknown name."""
        if name not in self.tables:
            raise QueryError(f"unknown table {name!r}; the tables are {', '.join(self.tables)}")
        return self._store.frame(name)

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run one SELECT and return its column names and rows. ``$name`` refers to a value in ``params``.

        The query can read only the tables. Raise QueryError if it fails or takes longer than a minute.
        """
        return self._store.query(sql, dict(params or {}))

    def close(self) -> None:
        """Release the tables and delete all temporary files."""
        self._closed = True
        self._open_until.close()


def analyze(
    paths: str | PathLike[str] | Sequence[str | PathLike[str]],
    rules: Iterable[Rule] | None = None,
    progress: Progress | None = None,
    logs: Sequence[str | PathLike[str]] = (),
    as_one_run: bool = False,
    run: str | None = None,
    device: str | None = None,
) -> Report:
    """Analyse ``paths`` with ``rules``, or with the shipped pack if ``rules`` is None.

    ``paths`` are files, folders or globs; several traces are read as the ranks of one run. ``logs`` are logs, metrics
    files and configurations of the run; by default, those next to a trace are used. If a folder contains several runs,
    ``run`` names the one to analyse, by default the newest complete run. ``device`` replaces the device of the traces:
    a name such as MI300X, or a TOML file with peak rates. Raise InputError if no file can be read, and if the given
    traces belong to several runs unless ``as_one_run`` is set or ``run`` names one of them. If only some files are
    unreadable, each is a TRC000 finding.
    """
    several = [paths] if isinstance(paths, (str, PathLike)) else paths
    return analysis.analyze(
        [fspath(path) for path in several],
        rules,
        progress,
        [fspath(log) for log in logs],
        as_one_run=as_one_run,
        run=run,
        device=device,
    )


def whatif(
    path: str | PathLike[str],
    fixes: Sequence[str] = (),
    *,
    scale: Mapping[str, float] | None = None,
    without: Sequence[str] = (),
    rank: int | None = None,
    rules: Iterable[Rule] | None = None,
    logs: Sequence[str | PathLike[str]] = (),
    run: str | None = None,
) -> WhatIf:
    """Predict the step time of the run at ``path`` with the fixes of the rules ``fixes`` (codes or names).

    ``scale`` multiplies the time of work by a factor (``{"kernel:*gemm*": 0.5}``), and ``without`` removes work and
    everything it launches (``["op:aten::item"]``). ``rank`` selects the rank to replay, by default the slowest. If the
    steps cannot be replayed well enough, ``predicted_step_ns`` is None, and ``why_not`` gives the reason. Raise
    RuleError for an unknown rule, PerfToolError for a change that matches nothing in the steps, and InputError like
    ``analyze``.
    """
    known = tuple(rules) if rules is not None else shipped_rules()
    chosen = rules_named(fixes, known)
    tasks = [
        *(parse_scale(f"{tasks}={factor}") for tasks, factor in (scale or {}).items()),
        *map(parse_without, without),
    ]
    inputs = find_inputs([fspath(path)], [fspath(log) for log in logs], run=run)
    with analysis.analysed(inputs) as opened:
        return what_if(opened.whole, chosen, tasks, rank)


def open_trace(
    path: str | PathLike[str],
    *,
    logs: Sequence[str | PathLike[str]] = (),
    as_one_run: bool = False,
    run: str | None = None,
) -> Trace:
    """Open a trace (a file, a folder of ranks, or a glob) together with the logs next to it.

    ``open_trace(path).frame("gaps")`` returns a pandas DataFrame. Use the trace as a context manager to delete
    its temporary files early. ``run`` names one of several runs in a folder. Raise InputError if nothing can be read,
    or if the given traces belong to several runs unless ``as_one_run`` is set or ``run`` names one of them.
    """
    inputs = find_inputs([fspath(path)], [fspath(log) for log in logs], as_one_run=as_one_run, run=run)
    with ExitStack() as open_until:
        opened = open_until.enter_context(analysis.analysed(inputs))
        return Trace(opened.whole, open_until.pop_all())
