"""Cuts a few iterations out of a recording of a real vLLM worker: ``serving.py TRACE NAME FIRST LAST``.

It keeps every op that no other op contains, and the Python functions that show a stage, a wait or the sending of a
result, all without their arguments. ``TRACE`` comes from ``benchmarks/serving.py``.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recording import anonymous

FOLDER = Path(__file__).resolve().parents[1] / "serving"
_ITERATION = re.compile(r"execute_.*context_.*_generation_")
_TELLING = re.compile(
    r"shm_broadcast\.py\(\d+\): (?:acquire_read|dequeue|enqueue)$|multiproc_executor\.py\(\d+\): "
    r"(?:worker_busy_loop|handle_output)$|gpu_model_runner\.py\(\d+\): (?:execute_model|sample_tokens|_prepare_inputs"
    r"|_update_states|_build_attention_metadata|_preprocess|_model_forward|_sample|_bookkeeping_sync)$"
    r"|: compute_logits$|zmq/.*: send$|core/sched/scheduler\.py\(\d+\): (?:schedule|update_from_output)$"
    r"|engine/output_processor\.py\(\d+\): process_outputs$"
)
_HEAD = ("schemaVersion", "vllm_version", "with_stack", "baseTimeNanoseconds")
_KEPT = ("ph", "cat", "name", "pid", "tid", "ts", "dur")

Event = dict[str, Any]


def main(trace: str, name: str, first: int, last: int) -> None:
    """Write the iterations ``first`` to ``last`` of ``trace`` as the sample ``name``."""
    recorded = json.loads(gzip.decompress(Path(trace).read_bytes()))
    events = [event for event in recorded["traceEvents"] if event.get("ph") == "X"]
    marks = sorted((event for event in events if _ITERATION.match(event["name"])), key=lambda event: event["ts"])
    begin, end = marks[first]["ts"], marks[last]["ts"] + marks[last]["dur"]
    inside = [event for event in events if event["ts"] >= begin and event["ts"] + event["dur"] <= end]
    kept = sorted((*_annotations(inside), *_outermost(inside)), key=lambda event: event["ts"])
    head = {key: recorded[key] for key in _HEAD if key in recorded}
    text = json.dumps({**head, "host_name": "host", "traceEvents": kept}, separators=(",", ":"))
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json.gz").write_bytes(gzip.compress(anonymous(text).encode(), compresslevel=9, mtime=0))


def _annotations(events: list[Event]) -> Iterator[Event]:
    for event in events:
        telling = event.get("cat") == "python_function" and _TELLING.search(event["name"])
        if event.get("cat") == "user_annotation" or telling:
            yield {key: event[key] for key in _KEPT}


def _outermost(events: list[Event]) -> Iterator[Event]:
    reach = 0.0
    for event in sorted(
        (one for one in events if one.get("cat") == "cpu_op"), key=lambda one: (one["ts"], -one["dur"])
    ):
        if event["ts"] >= reach:
            reach = event["ts"] + event["dur"]
            yield {key: event[key] for key in _KEPT}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
