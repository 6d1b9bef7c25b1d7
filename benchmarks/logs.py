"""Writes logs to measure how fast they are read: the console log of a training run, or the bridge's debug output."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path

# Sizes in MB. The difference between the times to read both sizes excludes fixed costs, mainly the program's start.
SMALL_MB, LARGE_MB = 5, 65
# The share of lines that the reader extracts.
SHARES = {"runtime log": 0.02, "debug log": 0.1}
_BATCH = 1000
# There is one line per millisecond; times start again at midnight.
_DAY_MS = 86_400_000


def write_log(kind: str, target: Path, megabytes: float) -> None:
    """Write a log of ``kind``, a key of ``SHARES``. Its lines are the same each time."""
    lines = _lines(kind)
    left = int(megabytes * 1e6)
    with target.open("w", encoding="ascii") as log:
        while left > 0:
            left -= log.write("\n".join(islice(lines, _BATCH)) + "\n")


def _lines(kind: str) -> Iterator[str]:
    dice = random.Random(0)
    quiet = _console if kind == "runtime log" else _debug
    for milliseconds in count():
        say: Callable[[random.Random], str] = _relevant if dice.random() < SHARES[kind] else quiet
        yield say(dice).replace("TIME", _time(milliseconds % _DAY_MS), 1)


def _time(milliseconds: int) -> str:
    seconds = milliseconds // 1000
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{milliseconds % 1000:03}000"


def _console(dice: random.Random) -> str:
    """Return a line of a script or a library that is unrelated to performance."""
    number, share = dice.randrange(100_000), dice.random()
    return dice.choice((
        f"epoch 3: iteration {number}, {share * 1000:.2f} samples/s, gradient norm {share:.4f}",
        f"INFO:root:worker {number % 8} is at item {number} after {share:.5f} s, {number % 96} GiB in use",
        f"2026-11-22 TIME - __main__ - INFO - saved the state of iteration {number} to /data/out/{number:06}",
        f"[rank{number % 8}]: accuracy {share:.4f} of {number} samples",
        f"[TIME][PT_BRIDGE          ][warning ][tid:{number % 16:X}] {number} elements are copied",
    ))  # fmt: skip


def _debug(dice: random.Random) -> str:
    """Return a line that the bridge or Synapse writes for each op at its most verbose level."""
    number, place = dice.randrange(100_000), dice.randrange(1 << 40)
    return f"[TIME][{dice.choice(_LOGGERS):<19}][debug   ][tid:{number % 16:X}] " + dice.choice((
        f"adding node {number} of type add with shape [{number % 512}, 512]",
        f"tensor {number} gets the value hpu::input of type BFloat16",
        f"copy of {number} bytes from 0x{place:x} to 0x{place + 4096:x}",
        f"allocated {number} bytes at 0x{place:x}, {number * 16} bytes in use",
    ))  # fmt: skip


def _relevant(dice: random.Random) -> str:
    """Return a line that the reader extracts."""
    number = dice.randrange(100_000)
    return f"[TIME][PT_BRIDGE          ][debug   ][tid:{number % 16:X}] " + dice.choice((
        "recipe cache hit :: static shapes",
        f"recipe cache miss :: key {number}",
        f"adding new recipe to cache :: {number:x}",
        "step marker due to local scalar dense",
        "CPU fallback aten::nonzero : self=HPUBFloat16Type",
        f"[CACHEFILE] Recipes total size: {number}, limit: 10737418240",
    ))  # fmt: skip


_LOGGERS = ("PT_BRIDGE", "PT_LAZY", "PT_SYNHELPER", "PT_DEVMEM", "SYN_API")
