"""Figures that several pages show, each from the one file that the benchmark of reading writes."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "benchmarks" / "reading.md"
PLACE = re.compile(r"(<!-- measured: (\w+) -->\n).*?(?=<!-- end of measured -->)", re.DOTALL)
_SECTION = re.compile(r"^## (\w+), (\d+) MB\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_GOAL = re.compile(r"^\| ([^|]+?) \| ([^|]+?) \| ([^|]+?) \| ([^|]+?) \|$", re.MULTILINE)
PROGRAMS = {
    "habana_perf_tool, everything": "perftool", "json, decode only": "json", "orjson, decode only": "orjson",
    "msgspec, typed decode only": "msgspec", "torch-tb-profiler": "torch-tb-profiler", "HolisticTraceAnalysis": "HTA",
}  # fmt: skip
CHAT, TRAIN = "h100_qwen_chat", "cuda_a100_train_rank0"

# CPU seconds and peak MiB of each program; None if it was not run or failed.
Costs = dict[str, tuple[float, int] | None]


def fill(page: str) -> str:
    """``page`` with today's figures in its marked places."""
    return PLACE.sub(lambda found: found[1] + _BLOCKS[found[2]](), page)


def costs() -> dict[tuple[str, int], Costs]:
    """The costs of each program, by trace and MB."""
    text = SOURCE.read_text(encoding="utf-8")
    return {(name, int(size)): _costs(table) for name, size, table in _SECTION.findall(text)}


def _costs(table: str) -> Costs:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")]
    return {row[0]: None if row[1] == "-" else (float(row[1]), int(row[4])) for row in rows[1:]}


def _of(trace: str, about: int) -> tuple[int, Costs]:
    """The recording of ``trace`` whose size is closest to ``about`` MB."""
    sizes = {size: found for (name, size), found in costs().items() if name == trace}
    size = min(sizes, key=lambda size: abs(size - about))
    return size, sizes[size]


def _cell(cost: tuple[float, int] | None) -> str:
    return "fails" if cost is None else f"{cost[0]:.1f} ({cost[1]})"


def both() -> str:
    """Two traces of some 200 MB: times with decimals, and whole microseconds."""
    (chat_mb, chat), (train_mb, train) = _of(CHAT, 190), _of(TRAIN, 190)
    head = (
        f"| CPU s (peak MiB) | `{CHAT}`, {chat_mb} MB: times with decimals | "
        f"`{TRAIN}`, {train_mb} MB: whole microseconds |\n|---|--:|--:|\n"
    )
    return head + "".join(
        f"| {shown} | {_cell(chat[name])} | {_cell(train[name])} |\n" for shown, name in PROGRAMS.items()
    )


def sizes() -> str:
    """How time and memory grow, and the goal that is missed."""
    goals = {what: row for what, *row in _GOAL.findall(SOURCE.read_text(encoding="utf-8"))}
    grown = [value for what, row in goals.items() if what.startswith("CPU time per MB") for value in row[1:]]
    ratios = sorted(float(value) for value in grown if value != "-")
    peaks = [
        max(int(value) for value in goals[f"peak memory, {size} MB, MiB"][1:] if value != "-")
        for size in (1000, 3000, 5000)
    ]
    goal, chat, train = goals["analysis / json, 190 MB, CPU"]
    met = "met" if max(float(chat), float(train)) <= float(goal) else "not met"
    return (
        f"1, 3 and 5 GB take {ratios[0]:.1f} to {ratios[-1]:.1f} times as much processor time per MB, and up to "
        f"{peaks[0]}, {peaks[1]} and {peaks[2]} MiB.\nThe analysis takes {chat} and {train} of the processor time of "
        f"`json.load`; our goal of {goal} is {met}.\n"
    )


def train_large() -> str:
    """What 1 GB of the training takes."""
    size, found = _of(TRAIN, 1000)
    cost = found["perftool"]
    assert cost is not None
    return f"{size:,} MB take {cost[0]:.1f} s and {cost[1]} MiB.\n"


_BLOCKS = {"both": both, "sizes": sizes, "train_large": train_large}
