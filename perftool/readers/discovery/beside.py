"""Which logs, metrics and archives next to the traces belong to their run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from perftool.readers.discovery.contents import begins_trace, is_run, text_kind
from perftool.readers.discovery.names import is_hltv, must_be_read
from perftool.readers.files.companions import companions_in, files_of_other_runs
from perftool.readers.files.remote import is_url
from perftool.readers.files.runs import LEAVE_OUT, Chosen, Doubt
from perftool.readers.files.stream import reads_once
from perftool.readers.identity import identify
from perftool.readers.nodes import holds_host_trace, host_trace_rank

_WITHOUT_TRACES = "are not read: they are used only if there are no traces"
_SEPARATE = "check it in a separate call, or exclude it with --exclude"


def companions_of(traces: Iterable[str]) -> list[str]:
    folders = dict.fromkeys(Path(trace).parent for trace in traces if not (reads_once(trace) or is_url(trace)))
    read = set(traces)
    # The folder may contain unrelated logs, so files that the user did not name must be of a known kind.
    return [
        file
        for folder in folders
        for file in companions_in(folder)
        if file not in read and not begins_trace(file) and text_kind(file) not in ("unknown", "csv")
    ]


def of_run(nearby: Sequence[str], traces: Sequence[str], *, are_named: bool = False) -> Chosen:
    """Choose the files in ``nearby`` that belong to the run of ``traces``, and say why the others are left out.

    ``are_named``: whether the user named the traces, and so chose their ranks.
    """
    local = [trace for trace in traces if not (reads_once(trace) or is_url(trace))]
    kinds = {file: text_kind(file) for file in nearby}
    foreign = {other.path: other for other in files_of_other_runs(kinds.items(), local, is_run)}
    text = "is in the folder of the traces and is left out"
    notes = [f"{file} {text}: {other.reason}; --log reads it" for file, other in foreign.items()]
    doubts = tuple(
        Doubt(file, f"not read: {other.reason}", LEAVE_OUT)
        for file, other in foreign.items()
        if not (other.is_known or (are_named and other.by_rank)) and _may_matter(file, kinds[file])
    )
    files = tuple(file for file in nearby if file not in foreign)
    return Chosen(files, " ".join(notes) or None, tuple(foreign), doubts=doubts)


def _may_matter(file: str, kind: str) -> bool:
    """Whether a gate needs the contents of a ``file`` beside traces. There are other checks for archives."""
    is_recognised = kind not in ("unknown", "csv") and not is_hltv(file)
    return is_recognised or must_be_read(Path(file))


def unread_archives(archives: Iterable[str], traces: Sequence[str], named: Collection[str]) -> Iterator[Doubt]:
    """Yield doubts about ``archives`` whose host calls are not read, although none of the ``traces`` has their rank.

    If ``traces`` are all ranks of a run, only an archive that the user ``named`` may belong to this run.
    """
    known = list(map(identify, traces))
    ranks = {own.rank for own in known} - {None}
    # Each trace that does not state its rank may have the rank of any one archive.
    unstated = sum(own.rank is None for own in known)
    is_complete = all(own.world_size == len(traces) for own in known)
    stated = {archive: host_trace_rank(archive) for archive in archives}
    # Each trace may come from the same process as one archive that does not state its rank.
    free = len(traces) - len({rank for rank in stated.values() if rank is not None})
    for archive, rank in stated.items():
        if rank is None:
            free -= (has_calls := holds_host_trace(archive))
            is_known = not has_calls or free >= 0
        elif is_known := rank in ranks or unstated > 0:
            unstated -= rank not in ranks
            ranks.add(rank)
        if not is_known and (archive in named or not is_complete):
            of = "" if rank is None else f" (rank {rank})"
            yield Doubt(archive, f"its host calls{of} {_WITHOUT_TRACES}", _SEPARATE)
