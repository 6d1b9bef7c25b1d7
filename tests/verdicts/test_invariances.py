"""The report does not depend on the order of a trace's events, on its date or on its ids."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

from perftool.engine.analysis import analyze

SAMPLE = Path(__file__).parents[2] / "sample_traces" / "benchmarks" / "small_copies" / "naive" / "small_copies.json.gz"
Events = list[dict[str, Any]]


def shuffled(events: Events) -> Events:
    """Return ``events`` in a different order. Begin and end events keep their order, because at equal times nothing
    else shows which of them belong together.
    """
    mixed = random.Random(1).sample(events, len(events))
    paired = iter([event for event in events if event.get("ph") in ("B", "E")])
    return [next(paired) if event.get("ph") in ("B", "E") else event for event in mixed]


def later(events: Events) -> Events:
    return [{**event, "ts": event["ts"] + 1_000_000} if "ts" in event else event for event in events]


def renumbered(events: Events) -> Events:
    """Return ``events`` with correlations and flows numbered from a different start."""
    for event in events:
        args = event.get("args", {})
        args |= {key: args[key] + 7_000_000 for key in ("correlation", "External id") if isinstance(args.get(key), int)}
        if event.get("cat") in ("ac2g", "async_cpu_to_gpu"):
            event["id"] += 7_000_000
    return events


def answer_of(events: Events, place: Path) -> list[Any]:
    """Return the report on ``events``, without the log and the metrics of the sample."""
    path = place / "trace.json"
    path.write_text(json.dumps({**recorded(), "traceEvents": events}))
    report = analyze([str(path)])
    findings = [(found.code, found.message, found.gain) for found in report.findings]
    return [report.verdict.headline, findings, {name: metric.value for name, metric in report.summary.items()}]


def recorded() -> Any:
    return json.loads(gzip.decompress(SAMPLE.read_bytes()))


def test_a_modified_trace_gives_the_same_answer(tmp_path: Path) -> None:
    unchanged = answer_of(recorded()["traceEvents"], tmp_path)

    assert unchanged[1]
    # One analysis is enough for all changes, because no change undoes another.
    assert answer_of(renumbered(later(shuffled(recorded()["traceEvents"]))), tmp_path) == unchanged
