"""If a different rank is late in each step, the number of replays does not grow with the number of steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from events import Event, document, kernel, step

from perftool.api import analyze
from perftool.engine.rules.pack import shipped_rules
from perftool.replay.ranks.meetings import Meetings


def write_run(folder: Path, steps: int) -> list[str]:
    """Write three ranks. In each step, a different one computes longer."""
    paths = []
    for rank in range(3):
        events: list[Event] = []
        for number in range(steps):
            ts, computes = 1000 * number, 700 if number % 3 == rank else 500
            events += [
                step(number + 1, ts, 1000), kernel("gemm", ts, computes, 3 * number),
                kernel("ncclDevKernel_AllReduce", ts + computes, 800 - computes, 3 * number + 1),
                kernel("adam", ts + 800, 200, 3 * number + 2),
            ]  # fmt: skip
        path = folder / f"rank{rank}.json"
        path.write_bytes(document(events, distributedInfo={"rank": rank, "world_size": 3}))
        paths.append(str(path))
    return paths


def test_the_steps_are_replayed_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replays, ends = [], Meetings._ends

    def counted(self: Meetings, *args: object) -> object:
        replays.append(args)
        return ends(self, *args)

    monkeypatch.setattr(Meetings, "_ends", counted)
    counts = []
    for steps in (12, 24):
        (tmp_path / str(steps)).mkdir()
        report = analyze(
            write_run(tmp_path / str(steps), steps), [rule for rule in shipped_rules() if "COL" in rule.code]
        )
        assert report.verdict.headline.startswith(
            f"A different rank keeps the others waiting in {steps} of {steps} steps"
        )
        counts.append(len(replays))
    assert counts[1] == 2 * counts[0]
