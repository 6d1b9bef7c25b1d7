"""The share of an analysis's CPU time spent in replays: ``python benchmarks/replaying.py TRACE...``."""

from __future__ import annotations

import sys
from time import process_time
from typing import Any
from unittest.mock import patch

from perftool import analyze
from perftool.engine.rules import evaluate


def measure(path: str) -> str:
    """Measure the trace at ``path`` and return a line of text."""
    spent = 0.0
    replaying = evaluate.predicted

    def timed(*given: Any) -> Any:
        nonlocal spent
        begun = process_time()
        found = replaying(*given)
        spent += process_time() - begun
        return found

    begun = process_time()
    with patch.object(evaluate, "predicted", timed):
        model = analyze(path).model
    whole = process_time() - begun
    steps = model.steps if model else 0
    return f"{path}: {whole:.2f} s, replays {spent:.2f} s ({100 * spent / whole:.1f} %), {steps} steps"


if __name__ == "__main__":
    print("\n".join(map(measure, sys.argv[1:])))
