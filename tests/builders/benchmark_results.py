"""Invented benchmark results for tests."""

from __future__ import annotations

from dataclasses import replace

from perftool.model.benchmark import BenchmarkResult, FormFigures, Machine, Measurement, Proof, Ratio

TWICE = Ratio(2.0, 1.9, 2.1, 0.97)


def measurement(
    ratio: Ratio = TWICE, max_error: float = 1e-7, spread: float = 0.01, size: str = "small"
) -> Measurement:
    """A change that halves the time from 20 to 10 ms and the memory from 4 to 1 KiB."""
    return Measurement(
        size=size,
        naive=FormFigures("a loop", 0.020, spread, 4096, 12),
        advised=FormFigures("one call", 0.010, 0.01, 1024, 0),
        ratio=ratio,
        quantity="time",
        clock="cpu",
        heap="default",
        threads=1,
        rounds=6,
        bandwidth=40e9,
        max_error=max_error,
    )


def proof(before: tuple[str, ...] = ("FUS101",), after: tuple[str, ...] = (), simulated: bool = False) -> Proof:
    """A finding that promised at most 60 %, and a change that saved 50 %."""
    return Proof(
        simulated=simulated, fired_before=before, fired_after=after, gain_estimated=0.6, gain_predicted=0.55, ratio=2.0
    )


MACHINE = Machine("a processor", 2, "Linux x86_64", "3.10.0", "2.13.0", 0.5)
VALIDATED = BenchmarkResult(
    name="fused_adamw",
    rules=("FUS101",),
    summary="AdamW over all tensors at once",
    device="cpu",
    status="validated",
    reason=None,
    measurements=(measurement(), measurement(Ratio(1.0, 0.9, 1.1, 0.97), spread=0.3, size="large")),
    proof=proof(),
)
SIMULATED = BenchmarkResult(
    name="pinned_memory",
    rules=("CPY101",),
    summary="Copies from pinned memory",
    device="cpu",
    status="simulated",
    reason="needs a device with asynchronous execution",
    proof=replace(proof(("CPY101",), simulated=True), newly_fired=("GAP103", "RCP108")),
)
FAILED = BenchmarkResult(
    name="sdpa",
    rules=("FUS103",),
    summary="Attention in one op",
    device="cpu",
    status="failed",
    reason="sdpa: RuntimeError: a | b",
)
