"""Builds the measured tables of docs/peers.md from the results of benchmarks/peers.py."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

PARTS = ("speed", "runs", "numbers", "broken")
KEPT = Path(__file__).parents[2] / "benchmarks" / "peers.json"
NAMES = {
    "perftool": "habana_perf_tool", "torch-tb-profiler": "torch-tb-profiler", "HTA": "HTA", "gpu-idle": "gpu-idle",
    "Perfetto": "Perfetto", "json": "json, decode only", "orjson": "orjson, decode only",
    "msgspec": "msgspec, typed decode only",
}  # fmt: skip


def _part(name: str) -> tuple[str, dict[str, Any]]:
    """Return a sentence with the date and machine of a part's measurement, and the results."""
    parts = json.loads(KEPT.read_text(encoding="utf-8"))
    method, first = parts[name]["method"], parts[PARTS[0]]["method"]
    where = f"{method['machine']}; {method['versions']}"
    # The page states the machine and the versions once, above the first table.
    if name != PARTS[0] and where == f"{first['machine']}; {first['versions']}":
        where = "the same machine and versions"
    return f"Measured on {method['day']}: {where}.\n\n", parts[name]["found"]


def _table(head: str, rows: list[list[str]]) -> str:
    columns = head.count("|") - 1
    cells = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, "|---" * columns + "|", *cells, ""])


def _ended(ran: dict[str, Any]) -> str:
    if ran["traceback"]:
        return f"traceback, exit code {ran['code']}"
    return f"exit code {ran['code']}"


def _says(ran: dict[str, Any]) -> str:
    return re.sub(r": /tmp/\S+:", ":", str(ran["says"])).replace("|", "/")


def speed() -> str:
    """Return the CPU time of each program as a multiple of ours, and its peak memory."""
    method, found = _part("speed")
    ours = {name: trace["rows"]["perftool"]["cpu"] for name, trace in found.items()}
    heads = " | ".join(f"`{name}`, {trace['megabytes']} MB" for name, trace in found.items())
    rows = []
    for program, shown in NAMES.items():
        cells = [trace["rows"][program] for trace in found.values()]
        costs = zip(cells, ours.values(), strict=True)
        rows.append([shown, *(
            f"{cell['cpu']:.1f} s ({cell['cpu'] / unit:.2f}), {cell['peak']} MiB" if "cpu" in cell else cell["note"]
            for cell, unit in costs
        )])  # fmt: skip
    return method + _table(f"| CPU s (as a multiple of ours), peak | {heads} |", rows)


def runs() -> str:
    """Return the method and, for each kind of run, a Markdown table of the programs' costs and outcomes."""
    method, found = _part("runs")
    parts = []
    for what, programs in found.items():
        rows = [
            [NAMES[name], f"{ran['cpu']:.1f}", str(ran["peak"]), _ended(ran), _says(ran)]
            for name, ran in programs.items()
        ]
        title = what[0].upper() + what[1:]
        parts.append(f"**{title}**\n\n" + _table("| | CPU s | peak MiB | how it ends | what it says |", rows))
    return method + "\n".join(parts)


def numbers() -> str:
    """Return each program's output for a trace, before and after a few of its numbers were corrupted."""
    method, found = _part("numbers")
    rows = [[NAMES[name], _says(ran["before"]), _says(ran["after"])] for name, ran in found["rows"].items()]
    head = "| | unchanged | with seven impossible durations |"
    return method + f"{found['kernels']} kernels:\n\n" + _table(head, rows)


def broken() -> str:
    """Return how many corrupt copies each program analyses, how many it rejects, and how many crash it."""
    method, found = _part("broken")
    cut = "cut off at 60 %"
    rows = []
    for program, shown in NAMES.items():
        ends = [damaged[program] for damaged in found.values() if program in damaged]
        if ends:
            answers = sum(end["code"] == 0 for end in ends)
            tracebacks = sum(end["traceback"] for end in ends)
            refusals = len(ends) - answers - tracebacks
            rows.append([shown, str(answers), str(refusals), str(tracebacks), _ended(found[cut][program])])
    head = "| | answers | refuses, without a traceback | traceback | with the truncated file |"
    return method + f"{len(found)} copies: {'; '.join(found)}.\n\n" + _table(head, rows)


BLOCKS = {"peers_speed": speed, "peers_runs": runs, "peers_numbers": numbers, "peers_broken": broken}
