"""Groups traces into runs, and picks the run to analyse from a folder.

Traces are ranks of one run if each states its rank, in its metadata or its name, and nothing contradicts that. A trace
without a rank belongs to the run of another trace if both contain the same collectives at the same time. Every other
trace is a separate run.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path, PurePath

from perftool.errors import InputError
from perftool.readers.files.duplicates import WHOLE_SHARE, SetAside
from perftool.readers.files.meetings import met
from perftool.readers.files.model_work import runs_model
from perftool.readers.files.rank_name import rank_of
from perftool.readers.files.remote import is_url
from perftool.readers.files.stream import reads_once
from perftool.readers.identity import Identity, identify
from perftool.units import NS_PER_MS, NS_PER_S, format_bytes, with_date

_HANDLER_NAME = re.compile(r"(?P<worker>.+?)\.(?P<time>\d{12,})\.pt\.trace\.json(?:\.gz|\.zst)?")
_ENDS = re.compile(r"(?:\.pt\.trace)?\.json(?:\.gz|\.zst)?$")
# Lightning saves one file per rank and kind of step: `fit-<filename>-<rank>-[Strategy]DDPStrategy.training_step`.
_LIGHTNING_RANK = re.compile(r"(?:^|-)(\d+)-\[[A-Za-z]+\][^-]*$")
_KIND_OF_STEP = re.compile(r"(training|validation|test|predict)_step(?:-|$)")
# Traces of vLLM's API server (`<host>_<pid>.async_llm.<ns>...`), in which no model runs.
_FRONT_END = re.compile(r"\.async_llm$")
_TRAINING, _OF_FRONT_END = "training", "front end"
_CARD = re.compile(r"(?:accel|hl)\d+")
# The folder of one run: TensorBoard's `2026_01_31_10_00_00`, and `record`'s `2026-01-31_10-00-00`.
_RUN_DATE = re.compile(r"(\d{4}(?:_\d{2}){5}|\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d)(?:_\d+)?")
# Smaller times in file names are in milliseconds, as written by earlier versions of TensorBoard's handler.
_EARLIEST_NS = 10**15
# The ranks of a run start recording within this time, including differences between their clocks.
APART_NS = 600 * NS_PER_S
# A recording that is dated more than this far in the future has a wrong date.
_FUTURE_NS = 24 * 3600 * NS_PER_S
# The name that selects the newest run.
NEWEST = "newest"
UNREADABLE = "skipped, because it is not a readable trace"
LEAVE_OUT = "exclude it with --exclude, or name the files to read"
_PICK_ONE = f"pick a recording with --run NAME or --run {NEWEST}, or join all with --as-one-run"
# A run whose traces are smaller, on average, than this share of the traces of the largest similar run is taken to have
# crashed early.
_BROKEN_OFF_SHARE = 0.1
_BY_NAME = "pick a recording with --run NAME"
_NAME_IT = "name the file to check"
_MOST_LISTED = 20
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# Each trace is compared with at most this many of the latest runs, so that the time is linear in the number of traces.
# While the ranks of one run save their traces, fewer other runs save theirs.
_MOST_GROWING = 256
# A trace belongs with another trace, rather than with a run, if the two traces start closer together than this share of
# the distance to the run. Only this many traces before and after it are compared, so that the time is linear.
_TOGETHER_SHARE = 0.1
_MOST_NEARBY = 8


@dataclass
class Run:
    """The traces of one run's ranks, in the order given, and what they state about the run.

    ``saved_ns``: when the last trace was saved.
    ``span_ns``: the earliest and the latest start of a trace; empty if no start is known.
    ``lacks``: why the recording is incomplete; None if it is complete.
    """

    files: list[str] = field(default_factory=list)
    device: str | None = None
    world_size: int | None = None
    name: str = ""
    lacks: str | None = None
    ranks: set[int] = field(default_factory=set)
    processes: set[tuple[int, str | None]] = field(default_factory=set)
    span_ns: tuple[int, ...] = ()
    saved_ns: int = 0
    kind_of_step: str = _TRAINING
    date_folder: str | None = None

    def __str__(self) -> str:
        more = f" and {len(self.files) - 1} more" if len(self.files) > 1 else ""
        facts = [self.device, None if self.world_size is None else f"world size {self.world_size}", self.lacks]
        known = ", ".join(fact for fact in facts if fact)
        return f"{self.files[0]}{more}{f' ({known})' if known else ''}"

    def is_contradicted_by(self, trace: _Recording) -> bool:
        """Whether ``trace`` must be from another run."""
        own = trace.identity
        return (
            1 in (own.world_size, self.world_size)
            or (None not in (own.device, self.device) and own.device != self.device)
            or (None not in (own.world_size, self.world_size) and own.world_size != self.world_size)
            or len(self.files) == self.world_size
            or own.rank in self.ranks
            or trace.kind_of_step != self.kind_of_step
            or trace.date_folder != self.date_folder
            or (own.start_ns is not None and any(abs(own.start_ns - other) > APART_NS for other in self.span_ns))
        )  # fmt: skip

    def holds_evidence_for(self, trace: _Recording) -> bool:
        """Whether there is evidence that ``trace`` belongs to this run."""
        own = trace.identity
        if own.rank is not None and len(self.ranks) == len(self.files):
            return True
        # A process has one rank, so two recordings of it cannot be different ranks of this run.
        return trace.process not in self.processes and met(self.files[0], own.path)

    def add(self, trace: _Recording) -> None:
        own = trace.identity
        self.files.append(own.path)
        self.device = self.device or own.device
        self.world_size = self.world_size if own.world_size is None else own.world_size
        self.kind_of_step, self.date_folder = trace.kind_of_step, trace.date_folder
        self.saved_ns = max(self.saved_ns, trace.saved_ns)
        if trace.process:
            self.processes.add(trace.process)
        if own.rank is not None:
            self.ranks.add(own.rank)
        if own.start_ns is not None:
            starts = (*self.span_ns, own.start_ns)
            self.span_ns = (min(starts), max(starts))


@dataclass(frozen=True)
class _Recording:
    identity: Identity
    saved_ns: int
    kind_of_step: str
    date_folder: str | None

    @property
    def process(self) -> tuple[int, str | None] | None:
        own = self.identity
        return None if own.process is None else (own.process, own.host)

    @property
    def folder(self) -> PurePath:
        return PurePath(self.identity.path).parent


@dataclass(frozen=True)
class Doubt:
    """A file that was left out, the reason, and what the user can do."""

    file: str
    why: str
    way: str


@dataclass(frozen=True)
class Chosen:
    """The files of the selected run, a note about files that are not read, and the files of other runs (``others``).

    ``aside``: duplicates of other files. ``unread_parts``: parts that are not read, because their folder contains
    traces. ``doubts``: files that were left out, although the user did not ask for that. ``elsewhere``: those of
    ``others`` that are archives in the folders of other runs.
    """

    files: tuple[str, ...]
    note: str | None = None
    others: tuple[str, ...] = ()
    aside: tuple[SetAside, ...] = ()
    unread_parts: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    elsewhere: frozenset[str] = frozenset()


def is_recording(path: str) -> bool:
    """Whether the name or the folder of a file follows TensorBoard's conventions for recordings."""
    return _HANDLER_NAME.fullmatch(Path(path).name) is not None or _run_folder(path) is not None


def list_runs(traces: Sequence[str]) -> tuple[Run, ...]:
    """Group ``traces`` into runs with unique names, in the order of their first traces."""
    runs: list[Run] = []
    # Runs to which more traces may belong.
    growing: deque[Run] = deque(maxlen=_MOST_GROWING)
    folders: dict[int, set[PurePath]] = {}
    recordings = [_describe(trace) for trace in traces]
    nearby = _nearby(recordings)
    run_of: dict[str, Run] = {}
    # Newest first, so that older recordings of a process do not split a run.
    for trace in sorted(recordings, key=lambda one: (-one.saved_ns, one.identity.path)):
        candidates = [
            run
            for run in growing
            if not run.is_contradicted_by(trace)
            and run.holds_evidence_for(trace)
            and not _has_sibling_elsewhere(trace, run, nearby[trace.identity.path], run_of)
        ]
        own = min(
            candidates,
            key=lambda run: (trace.folder not in folders[id(run)], _start_distance_ns(run, trace)),
            default=None,
        )
        if own is None:
            runs.append(own := Run())
            if trace.identity.world_size != 1:
                growing.append(own)
        own.add(trace)
        run_of[trace.identity.path] = own
        folders.setdefault(id(own), set()).add(trace.folder)
    place = {trace: at for at, trace in enumerate(traces)}
    for run in runs:
        run.files.sort(key=place.__getitem__)
    runs.sort(key=lambda run: place[run.files[0]])
    _name(runs)
    _note_incomplete(runs)
    return tuple(runs)


def _nearby(recordings: Sequence[_Recording]) -> dict[str, Sequence[Identity]]:
    """Return, for each trace, the traces that start shortly before and after it."""
    known = sorted(
        (one.identity for one in recordings if one.identity.start_ns is not None),
        key=lambda own: (own.start_ns or 0, own.path),
    )
    near = {own.path: known[max(at - _MOST_NEARBY, 0) : at + _MOST_NEARBY + 1] for at, own in enumerate(known)}
    return {one.identity.path: near.get(one.identity.path, ()) for one in recordings}


def _has_sibling_elsewhere(trace: _Recording, run: Run, nearby: Iterable[Identity], run_of: Mapping[str, Run]) -> bool:
    """Whether ``trace`` was recorded together with another trace that cannot belong to ``run``, because ``run`` already
    has its rank: two runs may follow each other closely, and the later one may lack a rank."""
    own = trace.identity
    if own.start_ns is None or own.rank is None or not run.span_ns:
        return False
    limit = _start_distance_ns(run, trace) * _TOGETHER_SHARE
    return any(
        other.rank != own.rank
        and other.rank in run.ranks
        and run_of.get(other.path) is not run
        and abs((other.start_ns or 0) - own.start_ns) < limit
        for other in nearby
    )


def newest_run(folder: str, traces: Sequence[str], wanted: str | None = None) -> Chosen:
    """Pick the ``traces`` of the newest complete run in ``folder`` (a folder or other words for where they come from),
    or of the run called ``wanted``.

    Training counts as newer than the validation that Lightning records in the same run. NEWEST selects the newest run
    even if it is incomplete. Raise InputError unless exactly one run matches ``wanted``. Without ``wanted``, there is
    a doubt about each other recording.
    """
    by_name = wanted is not None and wanted != NEWEST
    runs = list_runs(traces) if len(traces) > 1 or by_name else ()
    if not by_name and len(runs) < 2:
        return Chosen(tuple(traces))
    newest_first = sorted(runs, key=_age, reverse=True)
    chosen = _newest_complete(newest_first) if wanted is None else _called(wanted, newest_first)
    others = _other_files(chosen, newest_first)
    note = None if by_name else _note(folder, chosen, newest_first)
    doubts = list(_doubts(chosen, newest_first) if wanted is None else _unreadable(others))
    if wanted == NEWEST and (why := _why_not_newest(chosen, newest_first)):
        doubts.append(Doubt(chosen.name, why, _BY_NAME))
    return Chosen(tuple(chosen.files), note, others, doubts=tuple(doubts))


def _why_not_newest(chosen: Run, runs: Sequence[Run]) -> str | None:
    """Return why ``chosen``, the newest of ``runs``, may not be what the user means by the newest recording, or None if
    it is.
    """
    if chosen.lacks:
        return f"the newest recording is incomplete ({chosen.lacks})"
    # Without a world size, only other recordings show which ranks there are.
    if chosen.world_size is None and any(chosen.ranks < run.ranks for run in runs):
        return "the newest recording has fewer ranks than another one"
    if any(run.saved_ns > chosen.saved_ns and not _accompanies(run, chosen) for run in runs if run is not chosen):
        return "a newer recording is of another kind, according to its name"
    # A wrong clock would make the same recording the newest one forever. Names may contain times in a different time
    # zone.
    if chosen.saved_ns > time.time_ns() + _FUTURE_NS:
        return "the newest recording is dated in the future"
    return None


def _newest_complete(newest_first: Sequence[Run]) -> Run:
    """Return the newest run, unless it is incomplete and another run is complete."""
    return next((run for run in newest_first if run.lacks is None), newest_first[0])


def require_one_run(traces: Sequence[str]) -> None:
    """Raise an InputError that lists the runs of ``traces`` unless they are one run."""
    if any(map(reads_once, traces)) or len(traces) < 2:
        return
    # Unreadable files do not belong to any run. The analysis reports them.
    runs = list_runs([trace for trace in traces if identify(trace).readable])
    if len(runs) < 2:
        return
    ways = "pick one with --run NAME, analyse each trace with --each, or join them with --as-one-run"
    raise InputError(f"these {len(traces)} traces belong to {len(runs)} runs; {ways}:", *_listed(runs))


def _listed(runs: Sequence[Run]) -> list[str]:
    lines = [f"  {number}. {run}" for number, run in enumerate(runs[:_MOST_LISTED], 1)]
    return lines if len(runs) <= _MOST_LISTED else [*lines, f"  and {len(runs) - _MOST_LISTED} more"]


def _shown(run: Run) -> list[str]:
    return [with_date(os.path.basename(file)) for file in run.files]


def _called(wanted: str, runs: Sequence[Run]) -> Run:
    """Return the run called ``wanted``, or the only run whose name contains it. ``wanted`` may be a name as reports
    show it, or NEWEST for the newest run."""
    if wanted == NEWEST and runs:
        return max(runs, key=_age)
    exact = [run for run in runs if run.name == wanted or wanted in (*run.files, *_shown(run))]
    named = exact or [run for run in runs if any(wanted in name for name in (run.name, *_shown(run)))]
    if len(named) == 1:
        return named[0]
    problem = "matches several runs" if named else "matches no run here"
    names = [run.name for run in named or runs]
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    raise InputError(f"--run {wanted}: {problem}; the runs are {', '.join(names[:_MOST_LISTED])}{more}")


def _other_files(chosen: Run, runs: Iterable[Run]) -> tuple[str, ...]:
    return tuple(file for run in runs if run is not chosen for file in run.files)


def _doubts(chosen: Run, newest_first: Sequence[Run]) -> Iterator[Doubt]:
    """Yield doubts about the recordings that are left out, except for those that accompany the chosen one."""
    for run in newest_first:
        if run is not chosen and not _accompanies(run, chosen):
            yield Doubt(run.files[0], "left out as part of another recording", _PICK_ONE)


def _accompanies(run: Run, chosen: Run) -> bool:
    """Whether ``run`` was recorded with the training or the server in ``chosen``, in its validation or its front end.
    The name alone is no evidence: the validation runs in the same process, and no model runs in the front end."""
    is_near = any(abs(one - other) <= APART_NS for one in run.span_ns for other in chosen.span_ns)
    if run.kind_of_step == _OF_FRONT_END:
        return is_near and chosen.kind_of_step == _TRAINING and not any(map(runs_model, run.files))
    # In a container, the process may have a number that identifies nothing.
    known = run.processes and chosen.processes
    return run.kind_of_step != chosen.kind_of_step and (bool(run.processes & chosen.processes) if known else is_near)


def _unreadable(files: Iterable[str]) -> Iterator[Doubt]:
    """Yield doubts about the unreadable ``files``, which may be ranks of any recording."""
    for file in files:
        if not identify(file).readable:
            yield Doubt(file, UNREADABLE, LEAVE_OUT)


def _note(folder: str, chosen: Run, newest_first: Sequence[Run]) -> str:
    newer = newest_first[: newest_first.index(chosen)]
    what = "the newest complete one" if newer else "the newest"
    ranks = f" ({len(chosen.files)} ranks)" if len(chosen.files) > 1 else ""
    others = [f"{run.name} ({run.lacks})" if run.lacks else run.name for run in newest_first if run is not chosen]
    more = f" and {len(others) - _MOST_LISTED} more" if len(others) > _MOST_LISTED else ""
    return (
        f"{folder} contains {len(newest_first)} recordings; analysing {what}: {chosen.name}{ranks}. "
        f"--run NAME picks another: {', '.join(others[:_MOST_LISTED])}{more}"
    )


def newest_profiles(folder: str, files: Sequence[str], device_in: Callable[[str], str]) -> Chosen:
    """Pick the newest of ``files`` for each card and rank, because Gaudi's native profiler writes a new CSV each time.

    ``device_in`` reads the card from a file whose name does not state it.
    """
    cards = defaultdict(list)
    for file in files:
        card = "".join(_CARD.findall(Path(file).name.lower())) or device_in(file)
        cards[card, rank_of(file)].append(file)
    newest = tuple(sorted(max(own, key=lambda file: (Path(file).stat().st_mtime_ns, file)) for own in cards.values()))
    note = (
        f"{folder} contains {len(files)} recordings of the native profiler; analysing the newest of each card: "
        f"{', '.join(newest)}. To analyse another one, name its file."
    )
    others = tuple(file for file in files if file not in newest)
    doubts = (Doubt(file, "left out as an older recording of its card", _NAME_IT) for file in others)
    return Chosen(newest, note if others else None, others, doubts=tuple(doubts))


def _start_distance_ns(run: Run, trace: _Recording) -> int:
    start = trace.identity.start_ns
    if start is not None and run.span_ns:
        return min(abs(start - other) for other in run.span_ns)
    return abs(run.saved_ns - trace.saved_ns)


def _age(run: Run) -> tuple[bool, int, str]:
    """Return a sort key that puts the default run to analyse last."""
    return run.kind_of_step == _TRAINING, run.saved_ns, run.files[0]


def _name(runs: Sequence[Run]) -> None:
    """Name each run after the folder that contains only this run or, failing that, after its first trace."""
    if not runs:
        return
    paths = [PurePath(file) for run in runs for file in run.files]
    base = _common([path.parent for path in paths])
    users = Counter(folder for run in runs for folder in {up for file in run.files for up in PurePath(file).parents})
    for run in runs:
        folder = _common([PurePath(file).parent for file in run.files])
        is_unique = users[folder] == 1 and folder != base
        place = folder if is_unique else PurePath(_ENDS.sub("", run.files[0]))
        name = (place.relative_to(base) if place.is_relative_to(base) else place).as_posix()
        # A line feed in a name could fake a line of output.
        run.name = _CONTROL.sub("?", name)


def _common(folders: Sequence[PurePath]) -> PurePath:
    first = folders[0]
    return next(
        (up for up in (first, *first.parents) if all(folder.is_relative_to(up) for folder in folders)), PurePath()
    )


def _note_incomplete(runs: Sequence[Run]) -> None:
    """Set ``lacks`` for runs that are incomplete compared with others."""
    most = Counter[int | None]()
    for run in runs:
        most[run.world_size] = max(most[run.world_size], len(run.files))
    # Compare each run only with the largest of its kind, which takes linear time.
    largest_of: dict[tuple[object, ...], float] = defaultdict(float)
    sizes = [_mean_bytes(run) for run in runs]
    for run, own in zip(runs, sizes, strict=True):
        kind = (run.kind_of_step, _suffix(run))
        for key in (kind, *((*kind, _place(run), process) for process in run.processes)):
            largest_of[key] = max(largest_of[key], own)
    for run, own in zip(runs, sizes, strict=True):
        kind = (run.kind_of_step, _suffix(run))
        largest = largest_of[kind]
        keys = [(*kind, _place(run), process) for process in run.processes]
        cycle = max((largest_of[key] for key in keys), default=0.0)
        if own < WHOLE_SHARE * cycle:
            run.lacks = f"only part of a recording: {format_bytes(own)} instead of {format_bytes(cycle)}"
        elif own < _BROKEN_OFF_SHARE * largest:
            run.lacks = f"only {format_bytes(own)}, compared with {format_bytes(largest)}"
        elif run.world_size and len(run.files) < most[run.world_size]:
            run.lacks = f"{len(run.files)} of {run.world_size} ranks"


def _place(run: Run) -> str:
    """Return the folder of the first trace, with all numbers masked, because the folders of ranks and of recordings are
    numbered."""
    return re.sub(r"\d+", "0", str(PurePath(run.files[0]).parent))


def _mean_bytes(run: Run) -> float:
    sizes = [os.path.getsize(file) for file in run.files if os.path.isfile(file)]
    return sum(sizes) / len(sizes) if sizes else 0.0


def _suffix(run: Run) -> str:
    """Return the suffix of the first trace's name, which shows the compression. Sizes are comparable only if the
    compression is the same."""
    return PurePath(run.files[0]).suffix


def _run_folder(path: str) -> str | None:
    """Return the name ``<run>`` in a path like ``plugins/profile/<run>/FILE``."""
    parts = Path(path).parts
    return parts[-2] if parts[-4:-2] == ("plugins", "profile") else None


def _describe(path: str) -> _Recording:
    name = _HANDLER_NAME.fullmatch(PurePath(path).name)
    worker = name["worker"] if name else PurePath(path).name
    own = identify(path)
    if own.rank is None and (lightning := _LIGHTNING_RANK.search(worker)):
        own = replace(own, rank=int(lightning[1]))
    kind = _KIND_OF_STEP.search(worker)
    step = _OF_FRONT_END if _FRONT_END.search(worker) else kind[1] if kind else _TRAINING
    date = next((part for part in reversed(PurePath(path).parts[:-1]) if _RUN_DATE.fullmatch(part)), None)
    return _Recording(own, _saved_ns(own, name["time"] if name else None, date), step, date)


def _saved_ns(own: Identity, written: str | None, date: str | None) -> int:
    """Return when a recording was saved, in ns since 1970, according to its name, its events, its run's folder, or its
    file. The events come before the folder, because the folder's date is in an unknown time zone."""
    if written:
        return int(written) if int(written) > _EARLIEST_NS else int(written) * NS_PER_MS
    if own.start_ns is not None:
        return own.start_ns
    if date:
        digits = re.sub(r"\D", "", date)[:14]
        with suppress(ValueError):
            return int(datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=timezone.utc).timestamp()) * NS_PER_S
    if is_url(own.path) or not os.path.exists(own.path):
        return 0
    return os.stat(own.path).st_mtime_ns
