"""The time for thousands of process groups grows linearly with their number, not quadratically."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from perftool.engine.report.parallel import passed_on
from perftool.replay.ranks import culprits

MANY = 20_000


def test_transfers_of_many_groups_are_compared_in_linear_time() -> None:
    wire = np.arange(MANY) % 7 + 1.0
    meetings = SimpleNamespace(kind=np.zeros(MANY, dtype=int), lane=np.arange(MANY), wire=wire)

    began = time.process_time()
    whole, usual = culprits._Search._wires(SimpleNamespace(meetings=meetings))  # type: ignore[arg-type]

    assert time.process_time() - began < 5
    assert whole == dict(enumerate(wire.tolist()))
    assert set(usual.values()) == {4.0}


@pytest.mark.parametrize("values", [[3, 1], [3, 1, 2], [5, 1, 5, 2], [4, 4, 4, 1, 9], [6, 5, 4, 3, 2, 1]])
def test_each_group_is_compared_with_the_median_of_the_others(values: list[int]) -> None:
    lanes = np.arange(len(values))
    meetings = SimpleNamespace(kind=np.zeros(len(values), dtype=int), lane=lanes, wire=np.array(values, dtype=float))

    _, usual = culprits._Search._wires(SimpleNamespace(meetings=meetings))  # type: ignore[arg-type]

    assert usual == {lane: float(np.median(np.delete(values, lane))) for lane in lanes.tolist()}


def test_many_groups_of_the_same_ranks_are_examined_once() -> None:
    rows: dict[str, list[dict[str, Any]]] = {
        "arrivals": [{"role": "dp", "rank": 0, "exposed_ns": 100}],
        "process_groups": [{"role": role, "ranks": [0, 1]} for _ in range(MANY) for role in ("dp", "tp")],
    }
    gain = SimpleNamespace(kind="predicted")
    straggler: Any = SimpleNamespace(advice=True, code="COL103", gain=gain, evidence={"late_ns": 100}, late_ranks=[1])

    began = time.process_time()
    assert passed_on(SimpleNamespace(rows=rows.__getitem__), [straggler]) == ""  # type: ignore[arg-type]

    assert time.process_time() - began < 2
