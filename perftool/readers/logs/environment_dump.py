"""Reads environment variables from the output of ``env`` or ``export -p``, ``.env``, or ``/proc/<pid>/environ``. Such
output may also be at the beginning of a log.

An environment may contain passwords and tokens, so only variables that configure the run are kept, except those whose
names look like secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from perftool.model.records import ConfigEntry, LogReading
from perftool.readers.secrets import certainty
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.text_lines import Source, TextLine, read_lines

ASSIGNMENT = re.compile(r"\s*(?:export\s+|declare -x\s+|set\s+)?(?P<key>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>.*)$")
_BASH_FUNCTION = re.compile(r"\s*BASH_FUNC_")
_ENDS_OF_FUNCTION = {"}", "}'"}
_RELEVANT = re.compile(
    r"PT_|HABANA|HPU|HLS_|HCL_|HCCL|LOG_LEVEL_|ENABLE_|LOG_FILE_SIZE|GC_|FUSER_|RUNTIME_|EXP_|TPC_|MME_|"
    r"TORCH|PYTORCH|PYTHON(?:HASHSEED|OPTIMIZE|MALLOC)|OMP_|KMP_|GOMP_|MKL_|OPENBLAS_|NUMEXPR_|"
    r"LD_PRELOAD$|TCMALLOC|MALLOC_|JEMALLOC|CUDA_|NCCL_|GLOO_|UCX_|FI_|OMPI_|PMI_|SLURM_(?:PROCID|NTASKS|LOCALID|CPUS)|"
    r"(?:LOCAL_|NODE_|GROUP_|WORLD_)?(?:RANK|SIZE)$|LOCAL_WORLD_SIZE$|DEEPSPEED|DS_|ACCELERATE_|VLLM_|"
    r"BATCH_SIZE$|TOKENIZERS_PARALLELISM$"
)


def read(source: Source, rank: int | None = None) -> LogReading:
    """Read the variables that configure a run. Later assignments replace earlier ones.

    Raise InputError if the file cannot be opened or read.
    """
    tally = IssueTally()
    entries: dict[str, ConfigEntry] = {}
    for line in _assignments(read_lines(source, tally), tally):
        match = ASSIGNMENT.match(line.text)
        if match is None:
            tally.note("not an assignment", "a line is neither an assignment nor a comment", line.number)
        elif (key := match["key"]) in entries or (
            tally.has_room(len(entries), "variables", line.number) and is_relevant(key)
        ):
            entries[key] = ConfigEntry("environment", key, _unquoted(match["value"]), rank, line.number)
    return LogReading(config=tuple(entries.values()), issues=tally.issues(), kind="config")


def is_relevant(key: str) -> bool:
    """Whether the variable configures a run and is not a secret."""
    return bool(_RELEVANT.match(key)) and not certainty(key)


def leading(lines: Sequence[TextLine]) -> Sequence[TextLine]:
    """Return the part of ``lines`` before the first one that cannot belong to an environment."""
    end, in_function = 0, False
    for at, line in enumerate(lines, 1):
        if in_function or _BASH_FUNCTION.match(line.text):
            in_function = line.text.rstrip() not in _ENDS_OF_FUNCTION
        elif _is_setting(line.text) and not ASSIGNMENT.match(line.text):
            break
        if not in_function:
            end = at
    return lines[:end]


def _is_setting(text: str) -> bool:
    return text.lstrip()[:1] not in ("", "#")


def _assignments(lines: Iterable[TextLine], tally: IssueTally) -> Iterator[TextLine]:
    """Yield the lines that should be assignments: all except blank lines, comments and exported shell functions."""
    function = 0
    for line in lines:
        for text in line.text.split("\0"):
            if function or _BASH_FUNCTION.match(text):
                function = 0 if text.rstrip() in _ENDS_OF_FUNCTION else function or line.number
            elif _is_setting(text):
                yield TextLine(line.number, text)
    if function:
        tally.note("no end", "a shell function has no end, so the lines after its beginning are left out", function)


def _unquoted(value: str) -> str:
    value = value.strip()
    if len(value) >= 2 and value[0] in "'\"":
        end = value.find(value[0], 1)
        return value[1:end] if end > 0 else value
    # In a .env file, a comment may follow an unquoted value.
    return re.split(r"\s#", value, maxsplit=1)[0].rstrip()
