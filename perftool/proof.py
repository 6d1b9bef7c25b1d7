"""Advice proved: a benchmark measured, and its two traces, recorded or simulated, shown to the rules.

The benchmarks and the simulator know nothing of rules, and the rules nothing of them; this is where they meet.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from perftool.engine.analysis import analyze
from perftool.engine.rules.pack import builtin_folder, load_pack
from perftool.errors import InputError
from perftool.model.benchmark import BenchmarkResult, BenchmarkStatus, Measurement, Proof
from perftool.model.report import Report

if TYPE_CHECKING:
    from perftool.bench.harness.case import Benchmark
    from perftool.bench.harness.launch import Plan, Recorded

# The slowest Gaudi is kept busy by the smallest models, and those are all that a CPU can run in seconds.
SIMULATED_DEVICE = "gaudi"
# Graphs are compiled in these.
WARM_UP_STEPS = 4
_SIMULATION_TIMEOUT_S = 300.0
# A ratio whose whole interval is below this says that the advice does harm here, not that it does nothing.
_HARM = 0.9
# Called with what is being done for a benchmark.
Stage = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """How to run benchmarks: ``folder`` receives the traces, one folder for each benchmark."""

    device: str
    quick: bool
    folder: Path


def prove(benchmark: Benchmark, request: Request, stage: Stage) -> BenchmarkResult:
    """Measure ``benchmark``, show its traces to the rules, and judge both. Failures are results, not errors."""
    from perftool.bench.harness.launch import BenchmarkError, Plan

    folder = request.folder / benchmark.name
    folder.mkdir(parents=True, exist_ok=True)
    reason = why_not_measured(benchmark, request.device)
    measurements: tuple[Measurement, ...] = ()
    proof = None
    try:
        if reason is None:
            measurements = _measure(benchmark, request, folder, stage)
        if benchmark.script is not None or reason is None:
            stage("recording" if benchmark.script is None else "simulating")
            recorded = leave_traces(benchmark, request.device, Plan.of(request.quick), folder)
            proof = _shown(benchmark, recorded, measurements)
    except (BenchmarkError, InputError) as error:
        return _result(benchmark, request, "failed", str(error), measurements, proof)
    status, why = judge(benchmark, reason, measurements, proof)
    return _result(benchmark, request, status, why, measurements, proof)


def why_not_measured(benchmark: Benchmark, device: str) -> str | None:
    """Why there is nothing to measure on ``device``; None when there is."""
    if device not in benchmark.devices:
        return benchmark.reason
    return benchmark.unavailable()


def judge(
    benchmark: Benchmark, reason: str | None, measurements: Sequence[Measurement], proof: Proof | None
) -> tuple[BenchmarkStatus, str | None]:
    """The status of a row, and why it is not simply ``validated``.

    ``failed``: the forms disagree, a rule is silent before or fires after, or the advice does harm at the first size.
    """
    for measured in measurements:
        if not measured.max_error <= benchmark.tolerance:
            text = f"results differ by {measured.max_error:.2g}, more than {benchmark.tolerance:.2g}"
            return "failed", f"{text} (size {measured.size})"
    if proof is not None:
        if proof.max_error is not None and not proof.max_error <= benchmark.tolerance:
            return "failed", f"the simulated scripts' results differ by {proof.max_error:.2g}"
        silent = [code for code in benchmark.rules if code not in proof.fired_before]
        if silent:
            return "failed", f"{', '.join(silent)} did not fire on the naive form"
        if proof.fired_after:
            return "failed", f"{', '.join(proof.fired_after)} still fires on the advised form"
    if measurements and measurements[0].ratio.verdict == "loss" and measurements[0].ratio.high < _HARM:
        return "failed", f"the advised form is slower ({measurements[0].ratio.value:.2f})"
    if proof is None:
        return "skipped", reason
    if proof.simulated:
        return "simulated", reason or "the rule was shown simulated traces; the ratio is measured"
    verdicts = {measured.ratio.verdict for measured in measurements}
    if "win" in verdicts or not verdicts:
        return "validated", None
    if "unknown" in verdicts and measurements[0].ratio.value > 1.0:
        return "validated", "the ratio is that of one pair of runs, so how sure it is cannot be said"
    return "skipped", "no win measured on this device"


def proof_of(
    rules: Iterable[str],
    naive: Sequence[str],
    advised: Sequence[str],
    measured_ratio: float | None = None,
    work: float = 1.0,
) -> Proof:
    """What ``rules`` say about the traces of the two forms, simulated ones unless a measured ratio is given.

    ``work`` is how many times more a step of the advised form does.
    """
    pack = [rule for rule in load_pack(builtin_folder()) if rule.code in set(rules)]
    before, after = analyze(naive, pack), analyze(advised, pack)
    gains = [finding.gain for finding in before.findings if finding.gain is not None]
    bounds = [gain.most for gain in gains]
    predicted = [gain.share_of_step for gain in gains if gain.kind == "predicted"]
    return Proof(
        simulated=measured_ratio is None,
        fired_before=_codes(before),
        fired_after=_codes(after),
        gain_estimated=max(bounds, default=None),
        gain_predicted=max(predicted, default=None),
        ratio=_step_ratio(before, after, work) if measured_ratio is None else measured_ratio,
    )


def _codes(report: Report) -> tuple[str, ...]:
    return tuple(sorted({finding.code for finding in report.findings}))


def _step_ratio(naive: Report, advised: Report, work: float) -> float | None:
    before, after = _mean_step_ns(naive), _mean_step_ns(advised)
    return before / after * work if before and after else None


def _mean_step_ns(report: Report) -> float | None:
    """The mean: a host that runs ahead of its device makes many short steps and a few long ones."""
    complete = [step.dur_ns for step in report.steps if not step.partial]
    return sum(complete) / len(complete) if complete else None


def _measure(benchmark: Benchmark, request: Request, folder: Path, stage: Stage) -> tuple[Measurement, ...]:
    from perftool.bench.harness.launch import Plan, measure

    plan = Plan.of(request.quick)
    measured = []
    for size in benchmark.sizes[:1] if request.quick else benchmark.sizes:
        stage(f"measuring, {size}")
        measured.append(measure(benchmark, size, request.device, plan, folder))
        if benchmark.tuned_heap and not request.quick:
            stage(f"measuring, {size}, tuned heap")
            measured.append(measure(benchmark, size, request.device, plan, folder, "tuned"))
    return tuple(measured)


def leave_traces(benchmark: Benchmark, device: str, plan: Plan, folder: Path) -> Recorded:
    """What both forms leave in ``folder``: simulated if ``benchmark`` has a script for that, recorded otherwise.

    Raises BenchmarkError or InputError when a form fails.
    """
    from perftool.bench.harness.launch import record_traces

    if benchmark.script is not None:
        return _simulate(benchmark, benchmark.script, folder)
    return record_traces(benchmark, device, plan, folder)


def _shown(benchmark: Benchmark, recorded: Recorded, measurements: Sequence[Measurement]) -> Proof:
    from perftool.bench.harness.case import FORM_NAMES

    naive, advised = ([str(path) for path in recorded.files[form]] for form in FORM_NAMES)
    if benchmark.script is not None:
        proof = proof_of(benchmark.rules, naive, advised, work=benchmark.script_work)
        return replace(proof, max_error=recorded.max_error)
    ratio = recorded.ratio or measurements[0].ratio
    return proof_of(benchmark.rules, naive, advised, ratio.value)


def _simulate(benchmark: Benchmark, name: str, folder: Path) -> Recorded:
    """Run the script ``name`` in both forms on a simulated Gaudi; each leaves a folder."""
    from perftool.bench.harness.case import FORM_NAMES
    from perftool.bench.harness.launch import Recorded

    script = Path(__file__).parent / "bench" / "scripts" / name
    naive, advised = (_run_script(script, form, folder / form / f"{benchmark.name}.json.gz") for form in FORM_NAMES)
    error = None if naive is None or advised is None else abs(naive - advised) / max(abs(naive), 1e-12)
    return Recorded({form: [folder / form] for form in FORM_NAMES}, ratio=None, max_error=error)


def _run_script(script: Path, form: str, target: Path) -> float | None:
    """Leave the trace of one form at ``target``; returns the result that the script prints last, if it does."""
    target.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "perftool.sim", "--device", SIMULATED_DEVICE]
    command += ["--skip-steps", str(WARM_UP_STEPS), "-o", str(target), str(script), form]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_SIMULATION_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise InputError(f"{script.name} {form} did not end in {_SIMULATION_TIMEOUT_S:.0f} s") from None
    if ended.returncode:
        said = ended.stderr.strip().splitlines()
        raise InputError(f"{script.name} {form}: {said[-1] if said else f'exit code {ended.returncode}'}")
    printed = ended.stdout.split()
    return float(printed[-1]) if printed[-2:-1] == ["result"] else None


def _result(
    benchmark: Benchmark,
    request: Request,
    status: BenchmarkStatus,
    reason: str | None,
    measurements: tuple[Measurement, ...],
    proof: Proof | None,
) -> BenchmarkResult:
    return BenchmarkResult(
        name=benchmark.name,
        rules=benchmark.rules,
        summary=benchmark.summary,
        device=request.device,
        status=status,
        reason=reason,
        measurements=measurements,
        proof=proof,
    )
