"""The runs in a folder of recordings: TensorBoard log directories, ``hpu_profile`` folders, Lightning's logs.

Such a folder keeps what every run left there. Files of several runs are not ranks of one run, so the newest run is
taken. A recording is a file that PyTorch's TensorBoard handler named (``<worker>.<time>.pt.trace.json``, also ``.gz``
and ``.zst``), or any trace in ``plugins/profile/<run>/``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from perftool.readers.files.identity import metadata_of
from perftool.readers.files.rank_name import rank_of
from perftool.units import NS_PER_MS, NS_PER_S

_HANDLER_NAME = re.compile(r"(?P<worker>.+?)\.(?P<time>\d{12,})\.pt\.trace\.json(?:\.gz|\.zst)?")
# Lightning saves a file per rank and kind of step: `fit-<filename>-<rank>-[Strategy]DDPStrategy.training_step`.
_LIGHTNING_RANK = re.compile(r"(?:^|-)(\d+)-\[[A-Za-z]+\][^-]*$")
_KIND_OF_STEP = re.compile(r"(training|validation|test|predict)_step(?:-|$)")
_RUN_DATE = re.compile(r"\d{4}(?:_\d{2}){5}")
_RANK_FOLDER = re.compile(r"rank[_-]?\d+")
# The handler wrote milliseconds before it wrote nanoseconds.
_EARLIEST_NS = 10**15
# Processes that tell no rank belong to one run when they saved within this time of each other.
_SPREAD_NS = 60 * NS_PER_S
# Ranks of different hosts that state their place in one world: clocks differ, and some hosts save slowly.
_HOSTS_SPREAD_NS = 600 * NS_PER_S


@dataclass(frozen=True)
class Chosen:
    """The files of the newest run, a sentence about the ``others``, and these; None and nothing without others."""

    files: tuple[str, ...]
    note: str | None = None
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Recording:
    path: str
    worker: str
    rank: int | None
    ranks: int | None
    time_ns: int

    @property
    def process(self) -> int | str:
        return self.worker if self.rank is None else self.rank


def is_recording(path: str) -> bool:
    """Whether a file is named, or lies, as TensorBoard wants the recordings of its runs."""
    return _HANDLER_NAME.fullmatch(Path(path).name) is not None or _run_folder(path) is not None


def newest_run(folder: str, recordings: Sequence[str]) -> Chosen:
    """The ``recordings`` of ``folder`` that belong to its newest run.

    Training counts as newer than the validation that Lightning records beside it.
    """
    if len(recordings) < 2:
        return Chosen(tuple(recordings))
    runs = sorted(_runs(recordings), key=_age)
    newest = tuple(sorted(recording.path for recording in runs[-1]))
    if len(runs) == 1:
        return Chosen(newest)
    name = newest[0] if len(newest) == 1 else f"{newest[0]} and {len(newest) - 1} more of its ranks"
    return Chosen(
        newest,
        f"{folder} holds {len(runs)} recordings; analysing the newest: {name}. To see another, name its files.",
        tuple(recording.path for run in runs[:-1] for recording in run),
    )


def _run_folder(path: str) -> str | None:
    """The ``<run>`` of ``plugins/profile/<run>/FILE``."""
    parts = Path(path).parts
    return parts[-2] if parts[-4:-2] == ("plugins", "profile") else None


def _runs(paths: Iterable[str]) -> Iterator[list[_Recording]]:
    places = defaultdict(list)
    for path in paths:
        recording = _describe(path)
        places[_place(recording)].append(recording)
    found = [
        run
        for recordings in places.values()
        for run in _split(sorted(recordings, key=lambda recording: recording.time_ns, reverse=True))
    ]
    yield from _joined(sorted(found, key=_age, reverse=True))


def _joined(newest_first: Iterable[list[_Recording]]) -> Iterator[list[_Recording]]:
    """The runs, those together that lie in the folders of several hosts: parts of one world, saved at one time."""
    whole: list[list[_Recording]] = []
    for run in newest_first:
        own = next((other for other in whole if _belong(other, run)), None)
        if own is None:
            whole.append(list(run))
        else:
            own += run
    return iter(whole)


def _belong(one: Sequence[_Recording], other: Sequence[_Recording]) -> bool:
    first, second = one[-1], other[0]
    together = first.ranks == second.ranks and _kind_of_step(first) == _kind_of_step(second)
    if not together or first.ranks is None or len(one) + len(other) > first.ranks:
        return False
    if abs(one[0].time_ns - second.time_ns) > _HOSTS_SPREAD_NS:
        return False
    return None not in {recording.rank for recording in (*one, *other)} and not (
        {recording.rank for recording in one} & {recording.rank for recording in other}
    )


def _place(recording: _Recording) -> tuple[str, str]:
    """What the recordings of one run have in common: the folder but for a rank in it, and the kind of step."""
    return _RANK_FOLDER.sub("rank", str(Path(recording.path).parent)), _kind_of_step(recording)


def _kind_of_step(recording: _Recording) -> str:
    kind = _KIND_OF_STEP.search(recording.worker)
    return kind[1] if kind else "training"


def _split(newest_first: Iterable[_Recording]) -> Iterator[list[_Recording]]:
    """A run ends where a process comes up again, the number of ranks changes, or processes saved far apart."""
    run: list[_Recording] = []
    for recording in newest_first:
        if run and _starts_another(run, recording):
            yield run
            run = []
        run.append(recording)
    yield run


def _starts_another(run: Sequence[_Recording], older: _Recording) -> bool:
    last = run[-1]
    again = any(recording.process == older.process for recording in run)
    apart = older.rank is None and last.time_ns - older.time_ns > _SPREAD_NS
    return again or apart or older.ranks != last.ranks


def _age(run: Sequence[_Recording]) -> tuple[bool, int, str]:
    """Sorts runs from the least to the most wanted."""
    return _kind_of_step(run[0]) == "training", run[0].time_ns, run[0].path


def _describe(path: str) -> _Recording:
    name = _HANDLER_NAME.fullmatch(Path(path).name)
    worker = name["worker"] if name else Path(path).name
    info = _distributed_info(path)
    rank = info.get("rank") if isinstance(info.get("rank"), int) else _rank_in_name(path, worker)
    ranks = info.get("world_size") if isinstance(info.get("world_size"), int) else None
    return _Recording(path, worker, rank, ranks, _time_of(path, name["time"] if name else None))


def _distributed_info(path: str) -> dict[str, Any]:
    """What a trace says of the ranks; nothing when it is damaged or says nothing."""
    info = metadata_of(path).get("distributedInfo")
    return info if isinstance(info, dict) else {}


def _rank_in_name(path: str, worker: str) -> int | None:
    lightning = _LIGHTNING_RANK.search(worker)
    return int(lightning[1]) if lightning else rank_of(path)


def _time_of(path: str, written: str | None) -> int:
    """When a recording was saved, in ns since 1970: by its name, its run's name, or the file system."""
    if written:
        return int(written) if int(written) > _EARLIEST_NS else int(written) * NS_PER_MS
    run = _run_folder(path) or ""
    if _RUN_DATE.fullmatch(run):
        with suppress(ValueError):
            date = datetime.strptime(run, "%Y_%m_%d_%H_%M_%S").replace(tzinfo=timezone.utc)
            return int(date.timestamp()) * NS_PER_S
    return Path(path).stat().st_mtime_ns
