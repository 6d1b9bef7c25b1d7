"""The invariants hold of the samples, of traces that hypothesis makes, and of recorded ones where these are given."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from events import Event, document, kernel, loader, memcpy, runtime, step, x
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from invariants import breaches

from perftool.engine.analysis import analyze

SAMPLES = Path(__file__).parents[2] / "sample_traces"
FOLDERS = ["gaudi2_unoptimised", "gaudi2_optimised", "gaudi3_gen_c.json.gz"]
SAMPLE_FILES = sorted(str(path.relative_to(SAMPLES)) for path in (SAMPLES / "cpu").glob("*.json.gz"))
RECORDED = sorted(Path(os.environ.get("PERFTOOL_VERDICT_TRACES", "/nowhere")).glob("*.json.gz"))


@pytest.mark.parametrize("name", [*FOLDERS, *SAMPLE_FILES])
def test_a_sample_breaks_none(name: str) -> None:
    assert list(breaches(analyze([str(SAMPLES / name)]))) == []


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_a_recorded_trace_breaks_none(path: Path) -> None:
    assert list(breaches(analyze([str(path)]))) == []


def submission(at: float, dur: float, delay: float, work: float, number: int, copy: bool) -> list[Event]:
    """A call at ``at`` and the work that it submits ``delay`` later."""
    if copy:
        name = "Memcpy HtoD (Pageable -> Device)"
        return [
            runtime("cudaMemcpyAsync", at, dur, number),
            memcpy(name, at + delay, work, number, bytes=4096),
        ]
    return [runtime("cudaLaunchKernel", at, dur, number), kernel("k", at + delay, work, number)]


TIMES = st.integers(0, 4000)
PART = st.one_of(
    st.tuples(st.just("work"), TIMES, TIMES, TIMES, TIMES, st.booleans()),
    st.tuples(st.just("op"), TIMES, TIMES),
    st.tuples(st.just("load"), TIMES, TIMES),
    st.tuples(st.just("wait"), TIMES, TIMES),
)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(st.lists(PART, min_size=1, max_size=12), st.integers(0, 3))
def test_a_made_trace_breaks_none(parts: list[tuple[object, ...]], steps: int) -> None:
    events: list[Event] = [step(number, 4000 * number, 4000) for number in range(steps)]
    at = 0.0
    for number, part in enumerate(parts, 1):
        kind, pause, dur = part[0], float(str(part[1])), float(str(part[2]))
        at += pause
        if kind == "work":
            events += submission(at, dur, float(str(part[3])), float(str(part[4])), number, bool(part[5]))
        elif kind == "op":
            events.append(x("aten::add", at, dur))
        elif kind == "load":
            events.append(loader(at, dur))
        else:
            events.append(runtime("cudaDeviceSynchronize", at, dur))
        at += dur
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_bytes(document(events))
        assert list(breaches(analyze([str(path)]))) == []
