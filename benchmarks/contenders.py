"""One way to read a trace per function: ``python benchmarks/contenders.py NAME TRACE`` runs it once.

Each imports its own modules, so that the measurement includes the program's start.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any


def perftool(path: str) -> None:
    """The whole analysis with all rules, as the command runs it."""
    from perftool.engine.analysis import analyze

    analyze([path])


def json_load(path: str) -> None:
    """The standard library: every event a dict."""
    with open(path, encoding="utf-8") as stream:
        json.load(stream)


def orjson_loads(path: str) -> None:
    """The fastest general decoder of Python: every event a dict."""
    import orjson

    orjson.loads(Path(path).read_bytes())


def msgspec_typed(path: str) -> None:
    """The fastest typed decoder of Python: every event a struct, its arguments left as text."""
    import msgspec

    texts = [(key, str, "") for key in ("ph", "cat", "name")]
    keys = [(key, int | str, 0) for key in ("pid", "tid", "id")]
    times = [(key, float, 0.0) for key in ("ts", "dur")]
    event = msgspec.defstruct("Event", [*texts, *keys, *times, ("args", msgspec.Raw, msgspec.Raw())], gc=False)
    trace = msgspec.defstruct("Trace", [("traceEvents", list[event])])
    msgspec.json.decode(Path(path).read_bytes(), type=trace)


def torch_tb_profiler(path: str) -> None:
    """PyTorch's TensorBoard plugin: everything it computes for its views of one worker."""
    from torch_tb_profiler.profiler.data import RunProfileData
    from torch_tb_profiler.profiler.run_generator import RunGenerator

    with tempfile.TemporaryDirectory() as cache:
        data = RunProfileData.parse("worker0", None, path, cache)
        RunGenerator("worker0", None, data).generate_run_profile()


def hta(path: str) -> None:
    """HolisticTraceAnalysis: load, then its breakdowns of time, kernels, idle time and overlap."""
    from hta.trace_analysis import TraceAnalysis

    analysis = TraceAnalysis(trace_files={0: path})
    analysis.get_temporal_breakdown(visualize=False)
    analysis.get_gpu_kernel_breakdown(visualize=False)
    analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
    analysis.get_comm_comp_overlap(visualize=False)


CONTENDERS: dict[str, Any] = {
    "perftool": perftool,
    "msgspec": msgspec_typed,
    "orjson": orjson_loads,
    "json": json_load,
    "torch-tb-profiler": torch_tb_profiler,
    "HTA": hta,
}

if __name__ == "__main__":
    CONTENDERS[sys.argv[1]](sys.argv[2])
