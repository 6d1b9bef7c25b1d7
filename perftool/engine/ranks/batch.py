"""Assigns ranks to traces, and groups traces into tasks."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from math import ceil
from operator import itemgetter

from perftool.model.inputs import ImportIssue
from perftool.readers.files.duplicates import SetAside
from perftool.readers.files.host_name import hosts_of, process_of
from perftool.readers.files.remote import is_url
from perftool.readers.files.stream import reads_once
from perftool.readers.identity import metadata_of
from perftool.store.ranks import assumed_rank, number_ranks, rank_of
from perftool.store.sizing import text_size

# The limit on a batch, in bytes of text. Small traces share a batch, because building the tables of a batch takes at
# least 0.25 s.
BATCH_BYTES = 256 << 20
# The limit if several processes each have a batch: 48 MiB of text need 400 MiB of memory.
BATCH_BYTES_SIDE_BY_SIDE = 48 << 20


@dataclass(frozen=True)
class RankFile:
    """A trace and its ``rank``, which is None if it is not known before the trace is read.

    ``issues`` were found before reading the trace. On other machines, a relative path is resolved against ``folder``.
    """

    path: str
    rank: int | None = None
    issues: tuple[ImportIssue, ...] = ()
    folder: str = ""

    @property
    def place(self) -> str:
        """The path of the file, valid in any working directory."""
        return self.path if is_url(self.path) else os.path.join(self.folder, self.path)


@dataclass(frozen=True)
class Batch:
    """Traces that one task reads into one store."""

    files: tuple[RankFile, ...]

    def split(self) -> list[Batch]:
        """Return the same traces, one per batch."""
        return [Batch((file,)) for file in self.files]

    def seen_from(self, folder: str) -> Batch:
        """Return the same traces for a process on another machine, where relative paths are resolved against
        ``folder``.
        """
        return Batch(tuple(replace(file, folder=folder) for file in self.files))

    def only(self, ranks: Container[int]) -> Batch:
        """Return the traces of ``ranks``."""
        return Batch(tuple(file for file in self.files if file.rank in ranks))


def number_files(paths: Sequence[str], set_aside: Sequence[SetAside] = ()) -> tuple[RankFile, ...]:
    """Assign a rank to each of ``paths``: the rank that the trace states, or else an unused rank.

    Traces without a rank are numbered by host and process, then by name in natural order. A file ``set_aside`` in
    favour of a trace becomes an issue of that trace. If there is a single trace, or if an input can be read only once,
    the rank is None until the trace is read.
    """
    left_out: dict[str, list[ImportIssue]] = {path: [] for path in paths}
    for aside in set_aside:
        left_out[aside.instead].append(ImportIssue(aside.why, 1, str(aside)))
    if len(paths) < 2 or any(map(reads_once, paths)):
        return tuple(RankFile(path, None, tuple(left_out[path])) for path in paths)
    metadata = {path: metadata_of(path) for path in paths}
    stated = {path: rank_of(path, metadata[path]) for path in paths}
    hosts = hosts_of(paths, metadata)
    order = sorted(
        paths, key=lambda path: (stated[path] is None, hosts.get(path, ""), process_of(path) or 0, _natural(path))
    )
    ranks = dict(zip(order, number_ranks([stated[path] for path in order]), strict=True))
    return tuple(
        RankFile(path, ranks[path], (*left_out[path], *assumed_rank(stated[path], ranks[path]))) for path in paths
    )


def _natural(path: str) -> list[tuple[int, str]]:
    """Return a sort key for natural order: numbers in names compare as numbers."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d{1,18})", path)]


def batches(files: Sequence[RankFile], workers: int = 1, *, separate: bool = False) -> tuple[Batch, ...]:
    """Divide ``files``, in order, into batches of about the same size, if possible at least one per worker.

    ``separate`` puts each file into its own batch.
    """
    if any(reads_once(file.path) for file in files):
        return (Batch(tuple(files)),)
    if separate:
        return tuple(Batch((file,)) for file in files)
    # One byte is added to each size, so that even empty files get a place in a batch.
    sizes = [text_size(file.path) + 1 for file in files]
    total = sum(sizes)
    most = BATCH_BYTES if workers == 1 else BATCH_BYTES_SIDE_BY_SIDE
    wanted = max(min(workers, len(files)), ceil(total / most))
    begins = accumulate(sizes, initial=0)
    middles = [int((begin + size / 2) * wanted / total) for begin, size in zip(begins, sizes, strict=False)]
    by_place = groupby(zip(middles, files, strict=True), key=itemgetter(0))
    return tuple(Batch(tuple(file for _, file in group)) for _, group in by_place)
