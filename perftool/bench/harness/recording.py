"""Records a few steps of a form with torch.profiler, for the rules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from perftool.output_file import gzip_when_done

# Steps to skip while the profiler starts up.
_WAIT = 1
_WARM_UP = 2
_ACTIVITIES = {"cuda": ProfilerActivity.CUDA, "xpu": ProfilerActivity.XPU}


def record(
    step: Callable[[], object], target: Path, steps: int, device: torch.device, with_stack: bool = False
) -> None:
    """Record ``steps`` calls in the steady state, and write the trace to ``target``, gzipped."""
    activities = [ProfilerActivity.CPU]
    if device.type in _ACTIVITIES:
        activities.append(_ACTIVITIES[device.type])
    elif device.type == "hpu":
        activities.append(ProfilerActivity.HPU)

    def save(profiler: profile) -> None:
        with gzip_when_done(target) as plain:
            profiler.export_chrome_trace(str(plain))

    with profile(
        activities=activities,
        schedule=schedule(wait=_WAIT, warmup=_WARM_UP, active=steps, repeat=1),
        on_trace_ready=save,
        record_shapes=True,
        with_stack=with_stack,
    ) as profiler:
        for _ in range(_WAIT + _WARM_UP + steps):
            step()
            profiler.step()


def peak_memory(run: Callable[[], object], device: torch.device) -> int:
    """Return the peak memory of a run in bytes, without the memory that was allocated before it."""
    run()
    if device.type != "cpu":
        accelerator = getattr(torch, device.type)
        accelerator.synchronize()
        before: int = accelerator.memory_allocated()
        accelerator.reset_peak_memory_stats()
        run()
        accelerator.synchronize()
        return int(accelerator.max_memory_allocated()) - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    in_use = most = 0
    memory = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(memory, key=lambda event: event.start_ns()):
        in_use += event.nbytes()
        most = max(most, in_use)
    return most
