"""Decides which logs, metrics files and configurations next to traces belong to the same run.

A folder may contain files of several runs. A file whose name contains the name of a run belongs to the traces with this
name. A file whose name contains a rank belongs to the traces of this rank. A file that only Gaudi's software writes
belongs to traces of a Gaudi. Dumps of the flight recorder belong to any traces.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from perftool.model.vendors import type_of_name
from perftool.readers.files.archives import ARCHIVE_ENDS, PACKED_ENDS
from perftool.readers.files.rank_name import rank_of
from perftool.readers.files.runs import is_recording
from perftool.readers.identity import identify

# Gaudi's metrics files, also numbered. Many other programs write a metrics.json.
_METRICS = ("*metrics*.json", "*metrics*.json.*")
# Name patterns of metrics pages and benchmark results. vLLM's own names contain the rate of requests, and SGLang's
# contain the month, the day and the number of prompts.
_PLAIN_MEASUREMENTS = (
    "*metrics*.txt", "*metrics*.prom", "*bench*.json", "*bench*.jsonl", "*bench*.txt", "*qps-*.json",
    "*_[01][0-9][0-3][0-9]_[0-9]*_*.jsonl",
)  # fmt: skip
_COMPRESSED = ("", ".gz", ".zst")
_MEASUREMENTS = tuple(name + end for name in _PLAIN_MEASUREMENTS for end in _COMPRESSED)
# Programs that rotate logs number the older ones.
_PLAIN_LOGS = ("*.log", "*.log.[0-9]", "*.log.[0-9][0-9]")
_LOGS = tuple(name + end for name in _PLAIN_LOGS for end in _COMPRESSED)
# Endings of logs and measurements that are not read: other compressions, archives, and copies.
_UNREAD_ENDS = (*PACKED_ENDS, *ARCHIVE_ENDS, ".bak", ".old", ".orig", "~")
# Name patterns of files next to a trace: logs, metrics files (also numbered), configuration, flight-recorder dumps,
# files of Gaudi's profiler, and benchmark results.
COMPANIONS = (
    *_LOGS, "pytorch_log*.txt", "*fallback*.txt", "gaudi_config.json", "ds_config*.json", "*deepspeed*.json", "*.env",
    "env.txt", "nccl_trace_rank_*", "comm_lib_trace_rank_*", "*_analyzed_nodes.csv", "*.hltv", *_METRICS,
    *_MEASUREMENTS,
)  # fmt: skip


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for the names that match one of ``patterns``, ignoring case on all systems."""
    return re.compile("|".join(translate(pattern) for pattern in patterns), re.IGNORECASE)


_COMPANION, _MEASUREMENT, _METRIC = _any_of(COMPANIONS), _any_of(_MEASUREMENTS), _any_of(_METRICS)
_UNREAD = _any_of(
    name + end for name in (*_PLAIN_LOGS, *_PLAIN_MEASUREMENTS) for end in (*_UNREAD_ENDS, ".[0-9]", ".[0-9][0-9]")
)
_ROTATED = re.compile(r".*\.log\.\d+(?:\.gz|\.zst)?", re.IGNORECASE | re.DOTALL)
# Dumps of the flight recorder, one for each rank.
_DUMP = re.compile(r"(?:nccl|comm_lib)_trace_rank_.*", re.IGNORECASE | re.DOTALL)
# Words that describe the kind of a file rather than its run.
_GENERIC = {
    "console", "output", "out", "stdout", "stderr", "err", "log", "logs", "main", "run", "job", "train", "training",
    "eval", "test", "inference", "infer", "predict", "script", "pytorch", "torch", "hpu", "gaudi", "habana", "synapse",
    "lazy", "runtime", "fallback", "fallbacks", "cpu", "metrics", "metric", "dist", "config", "ds", "deepspeed", "zero",
    "default", "profiling", "hltv", "hw", "prof", "accel", "analyzed", "nodes", "csv", "graph", "compiler", "perf",
    "stage", "env", "environment", "rank", "node", "host", "worker", "process", "pid", "trace", "traces", "profile",
    "profiler", "pt", "json", "jsonl", "prom", "server", "serve", "serving", "bench", "benchmark", "before", "after",
    "result", "results", "openai", "vllm", "qps", "infqps", "concurrency", "txt",
    "gz", "zst", "step", "steps", "slurm", "mpi", "banner", "hcl", "info", "debug",
}  # fmt: skip
_APPLE_DOUBLE = b"\0\5\x16\7"
_ANALYZED = "_analyzed_nodes.csv"
# Kinds of files that only Gaudi's software writes.
_OF_GAUDI = {"fallback_log", "metrics", "nodes", "graph"}


def companions_in(folder: Path) -> list[str]:
    """Return the files in ``folder`` whose names match COMPANIONS, sorted."""
    try:
        return companions_among(folder.iterdir())
    except OSError:
        return []


def companions_among(files: Iterable[Path]) -> list[str]:
    """Return the ``files`` whose names match COMPANIONS, sorted."""
    return sorted(str(file) for file in files if is_named_like_companion(file) and is_kept(file))


def is_named_like_companion(path: str | Path) -> bool:
    """Whether the name of ``path`` matches COMPANIONS."""
    return _COMPANION.fullmatch(os.path.basename(path)) is not None


def is_named_like_dump(path: str | Path) -> bool:
    """Whether ``path`` is named like a rank's flight-recorder dump, whatever the file contains."""
    return _DUMP.fullmatch(os.path.basename(path)) is not None


def is_named_like_measurement(path: str | Path) -> bool:
    """Whether ``path`` is named like a metrics page or a benchmark result, whatever it contains."""
    return _MEASUREMENT.fullmatch(os.path.basename(path)) is not None


def is_named_like_metrics(path: str | Path) -> bool:
    """Whether ``path`` is named like Gaudi's metrics, whatever it contains."""
    return _METRIC.fullmatch(os.path.basename(path)) is not None


def is_named_like_unread(path: str | Path) -> bool:
    """Whether ``path`` is named like a log or a measurement, but with an ending that is not read."""
    name = os.path.basename(path)
    return _UNREAD.fullmatch(name) is not None and _COMPANION.fullmatch(name) is None


def is_rotated(path: str | Path) -> bool:
    """Whether ``path`` is named like an older part of a log."""
    return _ROTATED.fullmatch(os.path.basename(path)) is not None


class OtherFile(NamedTuple):
    """A file that belongs to a different run or rank, and the reason. ``is_known``: whether more than the file's name
    shows that. ``by_rank``: whether the reason is its rank."""

    path: str
    reason: str
    is_known: bool
    by_rank: bool = False


def files_of_other_runs(
    files: Iterable[tuple[str, str]], traces: Sequence[str], is_run: Callable[[str], bool]
) -> list[OtherFile]:
    """Return the ``files`` (path and kind) that belong to a different run from ``traces``. ``is_run`` says whether a
    file contains the events of a run.
    """
    candidates = list(files)
    if not candidates or not traces:
        return []
    known = [identify(trace) for trace in traces]
    ranks = {trace.rank for trace in known}
    is_complete = all(trace.world_size == len(traces) for trace in known)
    types = {type_of_name(trace.device) if trace.device else None for trace in known}
    own_words = [_words(trace) for trace in traces]
    chosen = _Words(frozenset().union(*own_words), all(own_words))
    read = frozenset(traces)
    others = cache(partial(_other_traces, traces=read, is_run=is_run))
    found = []
    for path, kind in candidates:
        # PyTorch chooses the names of dumps, and a hang shows only in the dumps of all ranks.
        is_dump = kind == "flight_record" or is_named_like_dump(path)
        other = (
            _other_recording(path, read)
            or (None if is_dump else _other_name(path, chosen, others))
            or (None if is_dump else _other_rank(path, ranks, is_complete, others))
            or _other_device(path, kind, types)
        )
        if other:
            found.append(other)
    return found


def _other_recording(path: str, traces: frozenset[str]) -> OtherFile | None:
    """Return ``path`` if it is the analyzed-nodes file of a profiler CSV that is not in ``traces``."""
    csv = path.removesuffix(_ANALYZED) + ".csv"
    is_other = path.endswith(_ANALYZED) and csv not in traces and Path(csv).exists()
    return OtherFile(path, f"it belongs to {csv}", is_known=True) if is_other else None


class _Words(NamedTuple):
    """The words that identify runs in the names of traces. ``of_each``: whether every name contains such a word."""

    words: frozenset[str]
    of_each: bool


class _Others(NamedTuple):
    """The words and the ranks in the names of the other traces in a folder."""

    words: frozenset[str]
    ranks: frozenset[int | None]


def _other_name(path: str, chosen: _Words, others: Callable[[Path], _Others]) -> OtherFile | None:
    own = _words(path)
    if not own or not own.isdisjoint(chosen.words):
        return None
    is_known = not own.isdisjoint(others(Path(path).parent).words)
    return OtherFile(path, "its name is that of another run", is_known) if chosen.of_each or is_known else None


def _other_traces(folder: Path, traces: frozenset[str], is_run: Callable[[str], bool]) -> _Others:
    """Describe the traces of other runs or ranks in ``folder``."""
    files = {str(file) for file in folder.glob("*.json*")} - traces
    others = [file for file in files if not is_named_like_companion(file) and is_run(file)]
    return _Others(frozenset().union(*map(_words, others)), frozenset(map(rank_of, others)))


def _words(path: str) -> set[str]:
    """Return the words in a file name that identify its run, or none if the profiler generated the name."""
    if is_recording(path):
        return set()
    return set(re.findall(r"[a-z]{2,}", Path(path).name.lower())) - _GENERIC


def _other_rank(
    path: str, ranks: set[int | None], is_complete: bool, others: Callable[[Path], _Others]
) -> OtherFile | None:
    rank = rank_of(path)
    if rank is None or None in ranks or rank in ranks:
        return None
    is_known = is_complete or rank in others(Path(path).parent).ranks
    return OtherFile(path, f"it belongs to rank {rank}", is_known, by_rank=True)


def _other_device(path: str, kind: str, types: set[str | None]) -> OtherFile | None:
    is_other = kind in _OF_GAUDI and not types & {None, "hpu"}
    return OtherFile(path, "it belongs to a run on a Gaudi", is_known=True) if is_other else None


def irregular_text(file: str | Path) -> str:
    """Return a sentence about a ``file`` for which ``is_kept`` is false."""
    return f"{file} is {irregular_kind(file)}, and was not read"


def irregular_kind(file: str | Path) -> str:
    """Return what kind of file ``file`` is, given that ``is_kept`` is false for it."""
    return "a special file (such as a pipe) or a link to an empty file" if os.path.exists(file) else "a broken link"


def is_kept(file: Path) -> bool:
    """Whether ``file`` is a regular file. Pipes and devices are not traces, and may never end.

    A link to a file of size 0 does not count either, because endless system files report that size.
    """
    try:
        found = file.stat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and (found.st_size > 0 or not file.is_symlink())


def has_mac_attributes(file: Path) -> bool:
    """Whether ``file`` is an AppleDouble file, which macOS adds to archives and to foreign disks: for each file, one
    that has its attributes."""
    if not file.name.startswith("._") or not is_kept(file):
        return False
    try:
        with file.open("rb") as opened:
            return opened.read(len(_APPLE_DOUBLE)) == _APPLE_DOUBLE
    except OSError:
        return False
