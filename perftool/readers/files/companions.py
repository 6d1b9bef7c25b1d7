"""Which logs, metrics files and configurations that lie beside traces are of the same run.

Lying there says little: folders keep what several runs left. A file whose name says which run it is of belongs to
traces of that name, one that names a rank to a trace of that rank, and what Gaudi's bridge wrote to traces of a Gaudi.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from perftool.model.vendors import type_of_name
from perftool.readers.files.identity import Identity, identify
from perftool.readers.files.rank_name import rank_of
from perftool.readers.files.runs import is_recording

# What a run leaves beside its trace, by name: logs, metrics files (also numbered ones), configuration.
COMPANIONS = (
    "*.log", "pytorch_log*.txt", "*fallback*.txt", "*metrics*.json", "*metrics*.json.*", "*metrics*.txt",
    "gaudi_config.json", "ds_config*.json", "*deepspeed*.json", "*.env", "env.txt",
    "nccl_trace_rank_*", "comm_lib_trace_rank_*",
)  # fmt: skip
# Words that say what a file is, and not which run it is of.
_GENERIC = {
    "console", "output", "out", "stdout", "stderr", "err", "log", "logs", "main", "run", "job", "train", "training",
    "eval", "test", "inference", "infer", "predict", "script", "pytorch", "torch", "hpu", "gaudi", "habana", "synapse",
    "lazy", "runtime", "fallback", "fallbacks", "cpu", "metrics", "metric", "dist", "config", "ds", "deepspeed", "zero",
    "stage", "env", "environment", "rank", "node", "host", "worker", "process", "pid", "trace", "traces", "profile",
    "profiler", "pt", "json", "txt", "gz", "zst", "step", "steps", "slurm", "mpi", "banner", "hcl", "info", "debug",
}  # fmt: skip
# What only Gaudi's bridge writes, by the kind that the first lines tell.
_OF_GAUDI = {"fallback_log", "metrics"}


def companions_in(folder: Path, *, recursive: bool = False) -> list[str]:
    """The files of ``folder`` that are named like companions, sorted."""
    find = folder.rglob if recursive else folder.glob
    return sorted({str(file) for pattern in COMPANIONS for file in find(pattern) if is_kept(file)})


def strangers(files: Iterable[tuple[str, str]], traces: Sequence[str]) -> list[tuple[str, str]]:
    """Those of ``files`` (path and kind) that are of another run than ``traces``, each with the reason."""
    given = list(files)
    if not given or not traces:
        return []
    known = [identify(trace) for trace in traces]
    found = []
    for path, kind in given:
        reason = _named_apart(path, traces) or _ranked_apart(path, known) or _made_apart(kind, known)
        if reason:
            found.append((path, reason))
    return found


def _named_apart(path: str, traces: Sequence[str]) -> str | None:
    own = _words(path)
    if not own:
        return None
    chosen = [_words(trace) for trace in traces]
    if any(own & words for words in chosen):
        return None
    others = {str(file) for file in Path(path).parent.glob("*.json*")} - {*traces, path}
    others = {other for other in others if not _is_companion(other)}
    if any(own & _words(other) for other in others) or all(chosen):
        return "its name is of another run"
    return None


def _is_companion(path: str) -> bool:
    return any(Path(path).match(pattern) for pattern in COMPANIONS)


def _words(path: str) -> set[str]:
    """The words of a name that say which run it is of; none for a name that the profiler made up."""
    if is_recording(path):
        return set()
    return set(re.findall(r"[a-z]{2,}", Path(path).name.lower())) - _GENERIC


def _ranked_apart(path: str, known: Sequence[Identity]) -> str | None:
    rank = rank_of(path)
    ranks = {trace.rank for trace in known}
    return None if rank is None or None in ranks or rank in ranks else f"it is of rank {rank}"


def _made_apart(kind: str, known: Sequence[Identity]) -> str | None:
    types = {type_of_name(trace.device) if trace.device else None for trace in known}
    return None if kind not in _OF_GAUDI or types & {None, "hpu"} else "it is of a run on a Gaudi"


def is_kept(file: Path) -> bool:
    """Whether what lies in a folder is a file. A pipe or a device is nobody's trace, and may never end.

    Nor may what a link to a file leads to that says it is empty, as those of the system do.
    """
    try:
        found = file.stat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and (found.st_size > 0 or not file.is_symlink())
