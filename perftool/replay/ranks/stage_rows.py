"""Makes the rows of the table ``stages``: the compute and waiting times of each pipeline stage."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perftool.replay.ranks.lateness import Lateness
from perftool.replay.ranks.model import run_model_of
from perftool.store.trace_store import TraceStore


class StageRow(NamedTuple):
    """A row of the table ``stages``, whose SQL file documents the columns."""

    stage: int
    ranks: list[int]
    compute_ns: int
    bubble_ns: int
    bubble_ratio: float


def stage_rows(store: TraceStore) -> list[StageRow]:
    """Return the rows of the table ``stages`` for ``store``, or none if the run has no pipeline."""
    model = run_model_of(store)
    if isinstance(model, str):
        return []
    ranks = Lateness(store, model)
    computes = ranks.by_step(model.meetings.arrivals.causes["compute"][0]).mean(axis=1)
    waits = ranks.exposed.mean(axis=1)
    rows = []
    for stage, members in sorted(model.meetings.stages.items()):
        chosen = np.isin(model.meetings.ranks, members)
        if chosen.any():
            bubble = float(waits[chosen].mean())
            rows.append(
                StageRow(stage, list(members), round(computes[chosen].mean()), round(bubble), bubble / ranks.step_ns)
            )
    return rows
