"""Determines a trace's rank, the origin of its times, and the ranks of its run."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from perftool.model.inputs import ImportIssue, InputFile
from perftool.readers.files import rank_name
from perftool.readers.files.host_name import hosts_of
from perftool.readers.text.json_values import integer
from perftool.readers.text.python_value import parsed

# The distributedInfo of a real run is shorter. Longer text is ignored, because it would be parsed several times.
_LONGEST_INFO = 100_000
# Larger rank numbers are implausible and are rejected.
LARGEST_RANK = 1 << 17
# The latest plausible base time, in the year 2043.
LATEST_NS = 1 << 61


def distributed_info(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the trace's ``distributedInfo``, which describes its rank and its run. Old profilers wrote it as a Python
    literal."""
    info = metadata.get("distributedInfo")
    if isinstance(info, str) and len(info) <= _LONGEST_INFO:
        with contextlib.suppress(ValueError, RecursionError):
            info = parsed(info)
    return info if isinstance(info, dict) else {}


def rank_of(path: str, metadata: Mapping[str, Any]) -> int | None:
    """Return the rank of a trace according to its metadata or, failing that, its path."""
    rank = integer(distributed_info(metadata).get("rank"), LARGEST_RANK + 1)
    return rank_name.rank_of(path) if rank is None else rank


def base_time(metadata: Mapping[str, Any]) -> int:
    """Return the origin of a trace's times, in ns since 1970, or 0 when they are absolute."""
    return integer(metadata.get("baseTimeNanoseconds"), LATEST_NS + 1) or 0


def number_ranks(stated: Sequence[int | None]) -> list[int]:
    """Assign a rank to each trace of a run: the rank that it states, or a free rank if it states none or an earlier
    trace states the same rank."""
    named = {rank for rank in stated if rank is not None}
    free = (rank for rank in count() if rank not in named)
    first: set[int] = set()
    ranks = []
    for rank in stated:
        own = rank if rank is not None and rank not in first else next(free)
        first.add(own)
        ranks.append(own)
    return ranks


def free_rank(stated: int | None, used: Container[int]) -> int:
    """Return the stated rank if it is free, otherwise the lowest free rank."""
    if stated is not None and stated not in used:
        return stated
    return next(rank for rank in count() if rank not in used)


def rank_taken(stated: int | None, rank: int) -> tuple[ImportIssue, ...]:
    """Report a trace that states one rank but gets another ``rank``."""
    if stated in (None, rank):
        return ()
    return (ImportIssue("rank taken", 1, f"rank {stated} was already read; this file is shown as rank {rank}"),)


def assumed_rank(stated: int | None, rank: int) -> tuple[ImportIssue, ...]:
    """Report a trace that does not state its rank and gets ``rank``."""
    if stated is not None:
        return ()
    text = f"the trace does not state its rank; its host, process and name suggest rank {rank}"
    return (ImportIssue("rank assumed", 1, text),)


def ranks_of_run(
    traces: Iterable[InputFile], metadata: Mapping[int, Mapping[str, Any]], unreadable: Iterable[InputFile] = ()
) -> list[tuple[int, str, str | None]]:
    """Return every rank with its status (``ok``, ``unreadable``, or ``missing``) and its host (None if unknown).

    Ranks below the run's ``world_size`` without an input are missing, even if only one trace was given.
    """
    paths = {read.rank: read.path for read in (*unreadable, *traces) if read.rank is not None}
    hosts = hosts_of(list(paths.values()), {paths[rank]: top for rank, top in metadata.items() if rank in paths})
    status = {read.rank: "unreadable" for read in unreadable if read.rank is not None}
    status |= dict.fromkeys(metadata, "ok")
    status |= {rank: "missing" for rank in range(world_size(metadata) or 0) if rank not in status}
    return [(rank, known, hosts.get(paths.get(rank, ""))) for rank, known in sorted(status.items())]


def world_size(metadata: Mapping[int, Mapping[str, Any]]) -> int | None:
    """Return the number of ranks in the run according to its traces, or None if no trace states it."""
    sizes = (integer(distributed_info(top).get("world_size"), LARGEST_RANK + 1) for top in metadata.values())
    return max((size for size in sizes if size is not None), default=None)
