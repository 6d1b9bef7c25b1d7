"""Random traces of a small training run, for comparing the step breakdown with other methods."""

from __future__ import annotations

from dataclasses import dataclass, field

from events import Event, x
from hypothesis import strategies as st

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
COLLECTIVES = ("nccl:all_reduce", "nccl:all_gather", "gloo:broadcast")


@dataclass(frozen=True)
class Work:
    """Device work: its class, its interval and the call that launched it, or None if it was launched before the
    recording.
    """

    kind: str
    ts: int
    end: int
    call: tuple[int, int] | None


@dataclass
class Trace:
    """A run in microseconds: its host steps, host intervals by class, device work, and the events that show them."""

    steps: list[tuple[int, int]] = field(default_factory=list)
    host: list[tuple[str, int, int]] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


@st.composite
def traces(draw: st.DrawFn, *, old: bool = False, extra: bool = True) -> Trace:
    """Draw a trace with today's categories, or with those of old Kineto if ``old`` is set."""
    trace = Trace()
    at = 1000
    for number in range(draw(st.integers(1, 4))):
        at += draw(st.integers(0, 30))
        length = draw(st.integers(40, 200))
        trace.steps.append((at, at + length))
        trace.events.append(x(f"ProfilerStep#{number}", at, length, "Operator" if old else "user_annotation"))
        at += length
    if extra:
        # Work before and after the steps makes the recording longer than the steps.
        _host(trace, "cpu_op", "before", 900, 950, old, 1)
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["cpu_op", "cpu_op", "dataloader", "communication"]))
        start = draw(st.integers(980, at))
        name = {"cpu_op": "aten::add", "dataloader": LOADER}.get(kind) or draw(st.sampled_from(COLLECTIVES))
        _host(trace, kind, name, start, start + draw(st.integers(0, 90)), old, draw(st.integers(1, 2)))
    _device(draw, trace, at, old)
    return trace


def _host(trace: Trace, kind: str, name: str, start: int, end: int, old: bool, tid: int) -> None:
    trace.host.append((kind, start, end))
    identity = {"External id": 1000 + len(trace.events)}
    trace.events.append(x(name, start, end - start, "Operator" if old else "cpu_op", tid=tid, **identity))


def _device(draw: st.DrawFn, trace: Trace, last: int, old: bool) -> None:
    """Add calls and their work, in the order of the streams."""
    free = {7: 0, 9: 0}
    comm = [e["args"]["External id"] for e in trace.events if e["name"] in COLLECTIVES and e["name"] >= "nccl"]
    names = {"kernel": "Kernel", "memcpy": "Memcpy", "memset": "Memset"} if old else {
        "kernel": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}  # fmt: skip
    calls = sorted(draw(st.lists(st.integers(960, last), max_size=8)))
    for correlation, start in enumerate(calls, 1):
        call = (start, start + draw(st.integers(0, 10)))
        trace.host.append(("runtime", *call))
        category = "Runtime" if old else "cuda_runtime"
        identity = {"correlation": correlation, "External id": draw(st.sampled_from([0, *comm]))}
        trace.events.append(x("cudaLaunchKernel", start, call[1] - start, category, **identity))
        if draw(st.booleans()):
            stream = draw(st.sampled_from([7, 9]))
            begin = max(start + draw(st.integers(1, 40)), free[stream])
            free[stream] = begin + draw(st.integers(1, 60))
            kind = draw(st.sampled_from(["kernel", "kernel", "memcpy", "memset"]))
            launched = draw(st.booleans()) or bool(draw(st.integers(0, 3)))
            shown = {**identity, "device": 0, "stream": stream}
            if not launched:
                shown["correlation"] = 5000 + correlation
            trace.events.append(x("work", begin, free[stream] - begin, names[kind], pid=0, tid=stream, **shown))
            role = "communication" if kind == "kernel" and identity["External id"] in comm else kind
            trace.work.append(Work(role, begin, free[stream], call if launched else None))
