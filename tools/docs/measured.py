"""Fills in the figures on pages, each from the file that its benchmark writes."""

from __future__ import annotations

import re
from pathlib import Path

import peer_tables

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "benchmarks" / "reading.md"
PLACE = re.compile(r"(<!-- measured: (\w+) -->\n).*?(?=<!-- end of measured -->)", re.DOTALL)
_GOAL = re.compile(r"^\| ([^|]+?) \| ([^|]+?) \| ([^|]+?) \| ([^|]+?) \|$", re.MULTILINE)


def fill(page: str) -> str:
    """Return ``page`` with current figures where it marks them."""
    return PLACE.sub(lambda found: found[1] + _BLOCKS[found[2]](), page)


def sizes() -> str:
    """Return how time and memory grow with a trace's size, and whether the goal is met."""
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
        f"Per MB, traces of 1, 3 and 5 GB take {ratios[0]:.1f} to {ratios[-1]:.1f} times as much CPU time as a trace "
        f"of 190 MB. They need {peaks[0]}, {peaks[1]} and\n{peaks[2]} MiB. Analysing two traces took {chat} and "
        f"{train} times the CPU time of `json.load`; our goal, {goal}, is {met}.\n"
    )


_BLOCKS = {"sizes": sizes, **peer_tables.BLOCKS}
