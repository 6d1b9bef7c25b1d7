"""Reads ``graph_compiler_perf.log``, in which Gaudi's graph compiler gives advice on a graph, in lines without times.

The lines are ``[HIGH][<check>] <text>`` and ``[LOW ][<check>] <text>`` (``gc_perf.h`` in the open Gaudi software). The
text may contain a tensor or a node, sizes in MB, and the effective size in bytes of the FCD, the fastest-changing
dimension, which is contiguous in memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from perftool.model.nodes import CompilerAdvice
from perftool.model.records import LogReading
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.text_lines import Source, read_lines

_LINE = re.compile(r"\[(HIGH|LOW)\s*\]\[([^\]]{1,80})\]\s*(.*)")
_TENSOR = re.compile(r"\bTensor: (\S+)")
_NODE = re.compile(r"\b(?:Node:|[Tt]he node) (\S+)")
_SIZE = re.compile(r"\bsize (?:of )?(\d+(?:\.\d+)?) ?MB")
_FCD = re.compile(r"\beffective FCD (?:is )?(\d+) ?B\b")
_READS = re.compile(r"\bread (\d{1,9}) times\b")
_MEMORY = re.compile(r"\b(?:from|to) (SRAM|DRAM|HBM)\b")
_MOST_TEXT = 500
_MOST_MB = 1e9


def is_advice(lines: Iterable[str]) -> bool:
    """Whether most of the first lines of a file are compiler advice."""
    filled = [line for line in lines if line.strip()][:50]
    return bool(filled) and 2 * sum(_LINE.match(line) is not None for line in filled) > len(filled)


def read(source: Source, rank: int | None = None) -> LogReading:
    """Read each piece of advice once, and count its repetitions. The compiler repeats it when it recompiles the graph.

    Raise InputError if the file cannot be opened or read.
    """
    tally = IssueTally()
    counts: dict[tuple[str, str, str], list[int]] = {}
    for line in read_lines(source, tally):
        if found := _LINE.match(line.text):
            key = (found[1], found[2].strip(), found[3].strip()[:_MOST_TEXT])
            if key in counts or tally.has_room(len(counts), "pieces of advice", line.number):
                counts.setdefault(key, [0, line.number])[0] += 1
        elif line.text.strip():
            tally.note("other text", "a line is not compiler advice and is left out", line.number)
    advice = tuple(_advice(*key, count, first, rank) for key, (count, first) in counts.items())
    return LogReading(advice=advice, issues=tally.issues(), kind="runtime_log")


def _advice(priority: str, check: str, text: str, count: int, line: int, rank: int | None) -> CompilerAdvice:
    tensor, node, size, fcd = (pattern.search(text) for pattern in (_TENSOR, _NODE, _SIZE, _FCD))
    reads, memory = _READS.search(text), _MEMORY.search(text)
    megabytes = float(size[1]) if size else None
    return CompilerAdvice(
        priority=priority.lower(),
        check=check,
        text=text,
        tensor=tensor[1] if tensor else None,
        node=node[1] if node else None,
        size_bytes=None if megabytes is None or megabytes > _MOST_MB else round(megabytes * (1 << 20)),
        fcd_bytes=int(fcd[1]) if fcd and len(fcd[1]) < 16 else None,
        reads=int(reads[1]) if reads else None,
        memory=memory[1] if memory else None,
        count=count,
        line=line,
        rank=rank,
    )
