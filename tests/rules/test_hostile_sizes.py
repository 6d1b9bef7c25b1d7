"""No rule fails on sizes that no device could hold."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from company import device_of, write_rank
from rule_cases import all_cases, pack

from perftool.engine.analysis import analysed
from perftool.engine.rule_tests.cases import Case
from perftool.readers.discover import find_inputs

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?![\w.])")
_LARGEST = str(2**63 - 1)


def _groups() -> list[list[Case]]:
    """Return a case with sizes and findings of each rule about fused ops, grouped by device, because the device decides
    which rules run.
    """
    first: dict[str, Case] = {}
    for case in all_cases():
        single = not case.logs and not any("rank" in event for event in case.events)
        if case.code.startswith("FUS") and case.findings and single and '"Input Dims"' in json.dumps(case.events):
            first.setdefault(case.code, case)
    return [list(alike) for _, alike in groupby(sorted(first.values(), key=device_of), device_of)]


def _resized(sizes: Any, resize: Callable[[list[int]], list[int]]) -> Any:
    """Return ``sizes`` (nested lists) with each list of numbers resized."""
    if not isinstance(sizes, list):
        return sizes
    if sizes and all(isinstance(size, int) for size in sizes):
        return resize(sizes)
    return [_resized(size, resize) for size in sizes]


def _hostile(event: Any, resize: Callable[[list[int]], list[int]]) -> dict[str, Any]:
    args = dict(event.get("args", {}))
    if "Input Dims" in args:
        args["Input Dims"] = _resized(args["Input Dims"], resize)
    if "Concrete Inputs" in args:
        args["Concrete Inputs"] = [_NUMBER.sub(_LARGEST, value) for value in args["Concrete Inputs"]]
    return {**event, "args": args}


# Large sizes, many large ones, and none.
HOSTILE: tuple[Callable[[list[int]], list[int]], ...] = (
    lambda sizes: [2**40] * len(sizes), lambda _: [2**40] * 40, lambda sizes: [0] * len(sizes),
)  # fmt: skip


def test_no_rule_fails_on_impossible_sizes(tmp_path: Path) -> None:
    rules = [rule for rule in pack().values() if rule.code.startswith("FUS")]
    failures = []
    for number, cases in enumerate(_groups()):
        folder = tmp_path / str(number)
        folder.mkdir()
        hostile = [
            replace(case, events=[_hostile(event, resize) for event in case.events])
            for case in cases
            for resize in HOSTILE
        ]
        paths = [str(write_rank(case, rank, folder)) for rank, case in enumerate(hostile)]
        with analysed(find_inputs(paths, as_one_run=True), rules) as run:
            failures += [found.message for found in run.outcome.findings if found.code == "TRC001"]
    assert failures == []
