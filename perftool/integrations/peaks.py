"""Measures the peaks of a device: the rate of matmuls by dtype, and the memory bandwidth.

They are measured rather than computed, because the clock rate under load is unknown, and because they depend on
PyTorch's limits: its number of threads, ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import cycle

import torch

from perftool.integrations.modes import unrecorded, unseen_by_modes

# The size of the copied buffer, in bytes: larger than the caches of most machines. Two buffers are allocated.
_COPIED_BYTES = 64 << 20
# A buffer is copied in this many parts, because other processes rarely interrupt a short copy.
_COPIES = 16
_SIZES = (256, 512, 1024, 2048, 4096, 8192)
# A size is skipped if its matmul would take longer than both this limit and the time for the measurement. If the CPU
# has no instructions for a dtype, the dtype is emulated, and large matmuls take seconds.
_LONGEST_S = 0.02
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
# Accelerators support more dtypes and have larger caches, and launching a short copy takes longer than the copy.
_MORE_DTYPES = {"fp16": torch.float16}
_MORE_BYTES, _FEWER_COPIES = 1 << 30, 2
# A run on several threads counts only if the process was on a core for this share of the run, because a matmul takes a
# hundred times as long if one of its threads has no core.
_ON_A_CORE = 0.9


@dataclass(frozen=True)
class Peaks:
    """FLOP/s of matmuls by dtype, and bytes/s of memory (bytes read plus bytes written).

    A rate is missing if other processes disturbed every run.
    """

    products: Mapping[str, float]
    memory_bandwidth: float | None


def measured_peaks(seconds: float = 0.05, device: str = "cpu") -> Peaks:
    """Measure the best rates on ``device``, within ``seconds`` per kind of work. A CPU uses PyTorch's threads."""
    dtypes = _DTYPES if device == "cpu" else _DTYPES | _MORE_DTYPES
    with torch.inference_mode(), unseen_by_modes(), unrecorded():
        rates = {name: _product_rate(dtype, seconds, device) for name, dtype in dtypes.items()}
        return Peaks({name: rate for name, rate in rates.items() if rate}, _bandwidth(seconds, device))


def _product_rate(dtype: torch.dtype, seconds: float, device: str) -> float:
    """Measure the best matmul rate of ``dtype`` over several sizes, in FLOP/s. Return 0 if every run was disturbed."""
    best = 0.0
    for size in _SIZES:
        operand = torch.ones(size, size, dtype=dtype, device=device)
        result = torch.empty_like(operand)
        took = least_time(partial(torch.mm, operand, operand, out=result), seconds / len(_SIZES), device)
        best = max(best, 2 * size**3 / took)
        # The next size is twice as large, so its matmul takes eight times as long.
        if 8 * took > max(_LONGEST_S, seconds):
            break
    return best


def _bandwidth(seconds: float, device: str) -> float | None:
    """Measure the best bandwidth of short copies of uncached memory, in bytes/s. Return None if all were disturbed."""
    size, copies = (_COPIED_BYTES, _COPIES) if device == "cpu" else (_MORE_BYTES, _FEWER_COPIES)
    source, target = (torch.ones(size // 4, dtype=torch.float32, device=device).chunk(copies) for _ in range(2))
    pairs = cycle(zip(source, target, strict=True))

    def copy() -> None:
        a, b = next(pairs)
        b.copy_(a)

    return 2 * size / copies / least_time(copy, seconds, device) or None


def least_time(work: Callable[[], object], seconds: float, device: str = "cpu", *, warm: bool = True) -> float:
    """Time the shortest undisturbed run of ``work`` within ``seconds``, after a warm-up run if ``warm`` is set. Return
    its time in s, or infinity if every run was disturbed."""
    if warm:
        work()
        _wait(device)
    # If only this thread works, its CPU time is the time without any wait for a core.
    alone = device == "cpu" and torch.get_num_threads() == 1
    cpu_time = time.thread_time if alone else time.process_time
    best, until = float("inf"), time.perf_counter() + seconds
    while True:
        start, used = time.perf_counter(), cpu_time()
        work()
        _wait(device)
        now, used = time.perf_counter(), cpu_time() - used
        if alone:
            best = min(best, used)
        elif device != "cpu" or used > _ON_A_CORE * (now - start):
            best = min(best, now - start)
        if now >= until:
            return max(best, 1e-9)


def _wait(device: str) -> None:
    """Wait for the work launched on an accelerator; a CPU works synchronously."""
    if device != "cpu":
        torch.get_device_module(device).synchronize()
