"""Benchmark results as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from perftool.model.benchmark import BenchmarkResult, Machine, Measurement, Proof
from perftool.reporters.json import dump

VERSION = 1
_PROOF_KEYS = (
    "gain_estimated", "gain_predicted", "gain_measured", "gain_simulated", "ratio_simulated",
    "fired_before", "fired_after", "newly_fired",
)  # fmt: skip


def render_benchmarks_json(results: Sequence[BenchmarkResult], machine: Machine) -> bytes:
    """Render the machine and the results: times in seconds, sizes in bytes, null for numbers that were not measured."""
    rows = [_row(result) for result in results]
    return dump({"version": VERSION, "machine": asdict(machine), "benchmarks": rows}, indent=True)


def _row(result: BenchmarkResult) -> dict[str, Any]:
    first = result.measurements[0] if result.measurements else None
    return {
        "name": result.name,
        "rules": list(result.rules),
        "summary": result.summary,
        "device": result.device,
        "seconds": result.seconds,
        "status": result.status,
        "reason": result.reason,
        "naive": first.naive.seconds if first else None,
        "advised": first.advised.seconds if first else None,
        "ratio": first.ratio.value if first else None,
        "ratio_interval": [first.ratio.low, first.ratio.high] if first and first.ratio.confidence else None,
        "torch": first.torch.seconds if first and first.torch else None,
        "torch_ratio": first.torch_ratio.value if first and first.torch_ratio else None,
        "max_error": first.max_error if first else result.proof.max_error if result.proof else None,
        **_proof(result.proof),
        "measurements": [_measurement(measured) for measured in result.measurements],
    }


def _proof(proof: Proof | None) -> dict[str, Any]:
    if proof is None:
        return dict.fromkeys(_PROOF_KEYS)
    real, simulated = (None, proof) if proof.simulated else (proof, None)
    values = (
        proof.gain_estimated,
        proof.gain_predicted,
        real.gain if real else None,
        simulated.gain if simulated else None,
        simulated.ratio if simulated else None,
        list(proof.fired_before),
        list(proof.fired_after),
        list(proof.newly_fired),
    )
    return dict(zip(_PROOF_KEYS, values, strict=True))


def _measurement(measured: Measurement) -> dict[str, Any]:
    return {**asdict(measured), "verdict": measured.ratio.verdict, "noisy": measured.noisy}
