"""A run for tests of third-party rules: four steps that wait for data."""

from __future__ import annotations

from events import kernel, loader, runtime, step

from perftool.engine.rules.pack import builtin_folder, load_rule
from perftool.engine.rules.rule_queries import Context

CONTEXT = Context("cuda", steps=4, step_ns=1_000_000, window_ns=4_000_000)
CRASHED = load_rule(builtin_folder() / "trace_health" / "TRC001.toml")
_BODY = [loader(10, 600), runtime("cudaLaunchKernel", 700, 5, 1), kernel("k", 708, 50, 1)]
EVENTS = [
    {**event, "ts": event["ts"] + number * 1000, "args": {**event.get("args", {}), "correlation": number + 1}}
    for number in range(4)
    for event in _BODY
] + [step(number, number * 1000, 1000) for number in range(4)]
