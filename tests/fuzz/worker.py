"""Feeds inputs to one target of the fuzzer and prints the cost of each as a line of JSON. ``run.py`` starts it."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cost import TooMuchError, may_cost
from targets import TARGETS, Target, attempt

# Allocations beyond this limit fail, as on a small machine.
_MOST_MEMORY = 6 << 30


def main(name: str, number: int, seconds: float) -> None:
    # Other output must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY, _MOST_MEMORY))
    target = TARGETS[name]
    # The first run includes imports, so it does not count.
    cpu_of(target, target.seeds[0])
    good_s = max(cpu_of(target, seed)[0] for seed in target.seeds)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        print(json.dumps({"number": number, **answer_to(target, number, good_s)}), file=answers, flush=True)
        number += 1


def answer_to(target: Target, number: int, good_s: float) -> dict:
    """Return the cost of input ``number``, and its failure if it failed. Benign inputs take ``good_s`` seconds."""
    data = target.input(number)
    try:
        cpu_s, grown = cpu_of(target, data)
        may_cost(len(data), cpu_s, grown, good_s)
    except TooMuchError as error:
        return {"failure": str(error), "place": error.what, "cpu_s": cpu_s, "peak_mb": grown >> 20}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what we look for
        frame = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {str(error)[:200]} ({frame.filename}:{frame.lineno})"
        return {"failure": text, "place": f"{type(error).__name__} {frame.filename}:{frame.lineno}"}
    return {"cpu_s": round(cpu_s, 3), "peak_mb": grown >> 20}


def cpu_of(target: Target, data: bytes) -> tuple[float, int]:
    """Return the CPU seconds that one input takes, and the peak growth of the process in bytes."""
    before, begun = forget_peak(), time.process_time()
    attempt(target, data, memory=False)
    return time.process_time() - begun, max(0, peak() - before)


def forget_peak() -> int:
    """Reset the system's record of peak memory, and return the memory in use now in bytes."""
    if sys.platform == "linux":
        Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> int:
    if sys.platform != "linux":
        return 0
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
