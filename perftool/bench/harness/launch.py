"""Runs each benchmark in separate processes, so that they share no heap, cache or thread pool."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from perftool.bench.harness.case import FORM_NAMES, Benchmark, FormName
from perftool.bench.harness.order import Answer, Order, read_answer
from perftool.bench.harness.ratio import ratio_of
from perftool.errors import PerfToolError
from perftool.model.benchmark import FormFigures, Measurement, Ratio

Heap = Literal["default", "tuned"]
# Makes the allocator keep freed memory, which avoids page faults.
TUNED_HEAP = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "4294967296"}
_TIMEOUT_S = 900.0


class BenchmarkError(PerfToolError):
    """A worker process failed; the message is its last output."""


@dataclass(frozen=True)
class Plan:
    """How long to measure; ``pairs`` is the number of processes per form, for forms that need separate processes."""

    rounds: int
    seconds: float
    pairs: int

    @classmethod
    def of(cls, quick: bool) -> Plan:
        """Return a plan that takes a few seconds if ``quick`` is true, and a minute otherwise."""
        return cls(rounds=6, seconds=1.0, pairs=1) if quick else cls(rounds=60, seconds=10.0, pairs=3)


def measure(
    benchmark: Benchmark, size: str, device: str, plan: Plan, folder: Path, heap: Heap = "default"
) -> Measurement:
    """Time the forms of ``benchmark`` at the size ``size``. Raise BenchmarkError if a worker fails."""
    if benchmark.separate_processes:
        return _measure_separately(benchmark, size, device, plan, folder, heap)
    order = _order(benchmark, benchmark.timed_forms, device, size, plan, folder)
    answer = _run(order, heap, benchmark.environment("naive"))
    return _measurement(benchmark, size, heap, answer, answer.figures, answer.seconds, answer.ratios)


def measure_and_record(benchmark: Benchmark, device: str, plan: Plan, folder: Path) -> tuple[Measurement, Recorded]:
    """Time the forms at the first size and record traces for the rules, in one process if the forms can share it.
    Raise BenchmarkError if a worker fails."""
    size = benchmark.sizes[0]
    if benchmark.separate_processes:
        measured = measure(benchmark, size, device, plan, folder)
        return measured, record_traces(benchmark, device, plan, folder)
    order = _order(benchmark, benchmark.timed_forms, device, size, plan, folder)
    order = replace(order, traced=benchmark.traced_size)
    answer = _run(order, "default", benchmark.environment("naive"))
    measured = _measurement(benchmark, size, "default", answer, answer.figures, answer.seconds, answer.ratios)
    return measured, Recorded({form: _outputs_of(order, form) for form in FORM_NAMES}, answer.step_ratio)


def _order(
    benchmark: Benchmark, forms: tuple[str, ...], device: str, size: str | None, plan: Plan, folder: Path
) -> Order:
    rounds = min(plan.rounds, benchmark.most_rounds)
    return Order(benchmark.name, forms, device, size, None, rounds, plan.seconds, str(folder), ranks=benchmark.ranks)


def _measure_separately(
    benchmark: Benchmark, size: str, device: str, plan: Plan, folder: Path, heap: Heap
) -> Measurement:
    answers: dict[str, list[Answer]] = {form: [] for form in FORM_NAMES}
    for _ in range(plan.pairs):
        for form in FORM_NAMES:
            order = replace(_order(benchmark, (form,), device, size, plan, folder), rounds=benchmark.runs_per_process)
            answers[form].append(_run(order, heap, benchmark.environment(form)))
    seconds = tuple(tuple(time for answer in answers[form] for time in answer.seconds[0]) for form in FORM_NAMES)
    figures = tuple(answers[form][-1].figures[0] for form in FORM_NAMES)
    return _measurement(benchmark, size, heap, answers["advised"][-1], figures, seconds, (ratio_of(*seconds),))


@dataclass(frozen=True)
class Recorded:
    """What was recorded for the rules. ``files`` are the traces of each form, one per rank, and, if the form sets
    environment variables, the file with them. ``ratio`` compares the step times without the profiler. ``max_error`` is
    the difference between the results of the simulated forms."""

    files: Mapping[FormName, list[Path]]
    ratio: Ratio | None
    max_error: float | None = None


def record_traces(benchmark: Benchmark, device: str, plan: Plan, folder: Path) -> Recorded:
    """Record both forms for the rules. Raise BenchmarkError when a worker fails."""
    files: dict[FormName, list[Path]] = {}
    ratio = None
    for forms in [(form,) for form in FORM_NAMES] if benchmark.separate_processes else [FORM_NAMES]:
        order = replace(_order(benchmark, forms, device, None, plan, folder), traced=benchmark.traced_size)
        ratio = _run(order, "default", benchmark.environment(forms[0])).step_ratio
        for form in forms:
            files[form] = _outputs_of(order, form)
    return Recorded(files, ratio)


def _outputs_of(order: Order, form: FormName) -> list[Path]:
    """Return the traces of ``form`` and, if it sets environment variables, the file with them."""
    traces = [order.of_rank(rank).trace(form) for rank in range(order.ranks)]
    return traces + [path for path in (order.environment(form),) if path.exists()]


def _run(order: Order, heap: Heap, environment: Mapping[str, str]) -> Answer:
    order.meeting.unlink(missing_ok=True)
    orders = [order.of_rank(rank) for rank in range(order.ranks)]
    caches = Path(order.folder) / "caches"
    settings = {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "TORCHINDUCTOR_CACHE_DIR": str(caches / f"{order.answer.stem}-{os.urandom(4).hex()}"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        **(TUNED_HEAP if heap == "tuned" else {}),
        **environment,
    }
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "perftool.bench.harness.worker", each.as_text()],
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        for each in orders
    ]
    try:
        outputs = [worker.communicate(timeout=_TIMEOUT_S)[0] for worker in workers]
    except subprocess.TimeoutExpired as error:
        raise BenchmarkError(f"{order.name} took longer than {_TIMEOUT_S:.0f} s") from error
    finally:
        for worker in workers:
            worker.kill()
    for worker, text in zip(workers, outputs, strict=True):
        if worker.returncode:
            raise BenchmarkError(f"{order.name}: {_last_line(text) or f'exit code {worker.returncode}'}")
    return read_answer(order.answer)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _measurement(
    benchmark: Benchmark,
    size: str,
    heap: Heap,
    answer: Answer,
    figures: tuple[FormFigures, ...],
    seconds: tuple[tuple[float, ...], ...],
    ratios: tuple[Ratio, ...],
) -> Measurement:
    naive, advised, *best = figures
    ratio = ratios[0]
    if benchmark.quantity == "memory" and naive.peak_bytes and advised.peak_bytes:
        exact = naive.peak_bytes / advised.peak_bytes
        ratio = Ratio(exact, exact, exact, 1.0)
    return Measurement(
        size=size,
        naive=naive,
        advised=advised,
        ratio=ratio,
        quantity=benchmark.quantity,
        clock="cpu" if answer.clock == "cpu" else "wall",
        heap=heap,
        threads=answer.threads,
        rounds=len(seconds[0]),
        bandwidth=answer.bandwidth,
        max_error=answer.max_error,
        torch=best[0] if best else None,
        torch_ratio=ratios[1] if best else None,
    )
