"""Finds the input files for command-line paths: traces, and the logs and configuration next to them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from perftool.errors import InputError, NoInputError
from perftool.readers.discovery.beside import companions_of, of_run, unread_archives
from perftool.readers.discovery.contents import is_text
from perftool.readers.discovery.names import is_hltv, is_part
from perftool.readers.discovery.paths import expand, is_no_folder
from perftool.readers.files.duplicates import SetAside, without_duplicates
from perftool.readers.files.picking import Wanted, is_excluded
from perftool.readers.files.remote import is_url, shown_path
from perftool.readers.files.runs import Chosen, Doubt, newest_run, require_one_run
from perftool.readers.files.stream import STDIN, reads_once
from perftool.readers.nodes import holds_host_trace


@dataclass(frozen=True)
class Inputs:
    """The files of an analysis, each once.

    ``texts``: logs, metrics and configuration.
    ``notes``: sentences about omitted files.
    ``parts``: ranks that were analysed separately.
    ``set_aside``: traces that duplicate others.
    ``captures``: traces recorded while device graphs were captured.
    ``left_out``: files of other runs.
    ``device``: the name of a device, or a file of peak rates. It overrides the device in the traces.
    ``named``: files that were given directly or by a pattern rather than by their folder.
    ``unread_parts``: parts that are not read, because their folder contains traces.
    ``doubts``: files that were left out, although the user did not ask for that.
    ``is_picked``: whether the user picked a run. ``as_one_run``: whether the user joins several runs.
    """

    traces: tuple[str, ...]
    texts: tuple[str, ...]
    notes: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    captures: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    device: str | None = None
    named: frozenset[str] = frozenset()
    unread_parts: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    is_picked: bool = False
    as_one_run: bool = False

    @property
    def files(self) -> tuple[str, ...]:
        """All files that were found, whether or not they are read. No output may overwrite them."""
        aside = (one.path for one in self.set_aside)
        device = [self.device] if self.device and os.path.isfile(self.device) else []
        return (*self.traces, *self.texts, *self.parts, *self.captures, *device, *aside, *self.left_out)

    @property
    def unread(self) -> tuple[SetAside, ...]:
        """The traces that were set aside, except for copies. If the user picked a run, these are only the traces that
        the user named, and those that may be the newest."""
        return tuple(
            one
            for one in self.set_aside
            if one.why != "copy" and (not self.is_picked or one.path in self.named or one.is_later)
        )

    @property
    def omitted(self) -> tuple[str, ...]:
        """Sentences about the files that a gate does not leave out by itself."""
        parts = [unread_parts_text([shown_path(part) for part in self.unread_parts])] if self.unread_parts else []
        return (*parts, *(f"{shown_path(doubt.file)}: {doubt.why}" for doubt in self.doubts), *map(str, self.unread))


def find_inputs(
    paths: Sequence[str],
    texts: Sequence[str] = (),
    exclude: Iterable[str] = (),
    *,
    companions: bool = True,
    as_one_run: bool = False,
    run: str | None = None,
    literal: bool = False,
) -> Inputs:
    """Find the files selected by ``paths`` (of any kind) and ``texts`` (no traces), sorted within folders and globs.

    If a folder contains several runs, this picks the newest complete run, or the one called ``run``, or all of them
    with ``as_one_run``. With ``literal``, wildcards in ``paths`` are ordinary characters. Without ``texts``, it adds
    logs and configuration found next to a trace. Raise InputError if a path does not exist, a folder contains no
    inputs, a pattern matches nothing, or files that were named one by one belong to several runs.
    """
    patterns = tuple(exclude)
    if [*paths, *texts].count(STDIN) > 1:
        raise InputError("'-' can be used only once")
    given = _expanded(paths, texts, Wanted(patterns, run, as_one_run), literal)
    if not (given.traces or given.logs or given.parts):
        raise NoInputError("no input is left after --exclude" if patterns else "no input")
    if run is not None and given.parts and not given.traces:
        raise InputError("--run picks a recording among traces, but the inputs are parts")
    picked = _one_run(given, run, as_one_run)
    beside = _beside(given, picked.files, patterns) if companions and not texts else Chosen(())
    chosen_by = (*given.by_path, *given.by_pattern, picked, beside)
    # Remove duplicates, because a file may be given both directly and by its folder.
    used = set(picked.files)
    aside = [one for one in dict.fromkeys(chain(*(one.aside for one in chosen_by))) if one.instead in used]
    read = {*used, *(one.path for one in aside)}
    unread_parts = tuple(dict.fromkeys(chain(*(one.unread_parts for one in given.by_path))))
    unread_parts = tuple(part for part in unread_parts if part not in set(given.parts))
    archives = _archives_left_out(given, picked.files, run)
    doubts = dict.fromkeys(doubt for one in (*given.by_path, *given.by_pattern, beside) for doubt in one.doubts)
    of_archives = (f"{one.file}: {one.why}" for one in archives if one.file in set(given.logs))
    of_parts = [f"{unread_parts_text(unread_parts)}; name the files to read"] if unread_parts else []
    return Inputs(
        traces=picked.files,
        texts=tuple(dict.fromkeys((*given.logs, *beside.files))),
        notes=(*(one.note for one in chosen_by if one.note), *of_parts, *of_archives),
        parts=tuple(dict.fromkeys(given.parts)),
        set_aside=tuple(aside),
        left_out=(*chain(*(one.others for one in chosen_by)), *(file for file in given.traces if file not in read)),
        named=given.named,
        unread_parts=unread_parts,
        doubts=(
            *picked.doubts,
            *(doubt for doubt in doubts if doubt.file not in {*read, *paths, *texts}),
            *archives,
        ),
        is_picked=run is not None,
        as_one_run=as_one_run,
    )


@dataclass(frozen=True)
class _Given:
    """The files that the paths of a command line stand for.

    ``by_path``: the files of each path that may be of any kind. ``by_pattern``: those of each path of texts, unless it
    is a folder. ``logs``: all texts, also logs and archives among the traces. ``archives``: those of Gaudi's
    profiler beside traces. ``named``: the files that were given directly or by a pattern rather than by their folder.
    """

    by_path: Sequence[Chosen]
    by_pattern: Sequence[Chosen]
    traces: Sequence[str]
    logs: Sequence[str]
    parts: Sequence[str]
    archives: Sequence[str]
    named: frozenset[str]
    in_folder: bool


def _expanded(paths: Sequence[str], texts: Sequence[str], wanted: Wanted, literal: bool) -> _Given:
    by_path = [expand(path, wanted, literal) for path in paths]
    by_text = [expand(path, Wanted()) for path in texts]
    selected = [file for found in by_path for file in found.files]
    parts = list(filter(is_part, selected))
    others = {file: is_text(file) for file in selected if not is_part(file)}
    traces = [file for file in selected if others.get(file) is False]
    logs = [*(file for file in selected if others.get(file)), *(file for found in by_text for file in found.files)]
    archives: list[str] = []
    if traces:
        beyond = (file for found in by_path for file in found.others)
        archives = [file for file in dict.fromkeys((*logs, *beyond)) if is_hltv(file)]
    else:
        # An archive of Gaudi's profiler may contain host calls. They are used only if there is no other trace.
        traces = [file for file in logs if not is_url(file) and holds_host_trace(file)]
    each = zip((*paths, *texts), (*by_path, *by_text), strict=True)
    return _Given(
        by_path,
        [found for path, found in zip(texts, by_text, strict=True) if is_no_folder(path)],
        traces,
        logs,
        parts,
        archives,
        named=frozenset(chain(*(one.files for path, one in each if path in one.files or is_no_folder(path)))),
        in_folder=any(map(os.path.isdir, paths)),
    )


def _one_run(given: _Given, run: str | None, as_one_run: bool) -> Chosen:
    """Return the traces of one run, each once. In a folder, the run is already picked."""
    traces = tuple(dict.fromkeys(given.traces))
    picks_here = run is not None and not given.in_folder and not any(map(reads_once, traces))
    picked = newest_run("the input", traces, run) if picks_here else Chosen(traces)
    if len(picked.files) < 2:
        return picked
    kept, aside = without_duplicates(picked.files)
    if not as_one_run:
        require_one_run(kept)
    return replace(picked, files=tuple(kept), aside=tuple(aside))


def _beside(given: _Given, traces: Sequence[str], exclude: Sequence[str]) -> Chosen:
    """Return the logs and configuration next to ``traces`` that belong to their run and were not given."""
    # Files that were given are read, whatever their names say.
    known = {os.path.abspath(file) for file in given.logs if not is_url(file)}
    nearby = [file for file in companions_of(traces) if os.path.abspath(file) not in known]
    return of_run([file for file in nearby if not is_excluded(file, exclude)], traces, are_named=True)


def _archives_left_out(given: _Given, traces: Sequence[str], run: str | None) -> tuple[Doubt, ...]:
    """Return doubts about archives whose host calls are not read, because there are traces."""
    # With --run, the user excludes the files of other recordings.
    elsewhere = {file for found in given.by_path for file in found.elsewhere} if run is not None else set()
    archives = [file for file in given.archives if file not in elsewhere or file in given.named]
    return tuple(unread_archives(archives, traces, given.named))


def unread_parts_text(parts: Sequence[str]) -> str:
    """Return a clause about unread ``parts``. A part in a folder with traces usually has the rank of one of them."""
    first, *more = parts
    if more:
        return f"{first} and {len(more)} more part{'s' if more[1:] else ''} were not read: their folder contains traces"
    return f"{first} was not read: its folder contains traces"
