"""Checks advice: measures the naive and the advised form of a benchmark, and runs the rules on their traces.

This is the only module that combines benchmarks, simulator and rules.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from perftool.engine.analysis import analyze
from perftool.errors import InputError
from perftool.model.benchmark import BenchmarkResult, BenchmarkStatus, Measurement, Proof
from perftool.model.report import Report
from perftool.units import format_ratio

if TYPE_CHECKING:
    from perftool.bench.harness.case import Benchmark, FormName
    from perftool.bench.harness.launch import Plan, Recorded

# The slowest Gaudi: small models do not keep a faster one busy, and larger models take too long to simulate.
SIMULATED_DEVICE = "gaudi"
# Graphs are compiled in these simulated steps, so they are left out of the trace.
WARM_UP_STEPS = 4
_SIMULATION_TIMEOUT_S = 300.0
# A benchmark fails for being slower only if the whole confidence interval of its ratio (naive / advised) is below this.
_HARM = 0.9
# Why a simulated result proves less than a measured one.
CIRCULAR = "circular: our own rule judges a device that our own model simulates"
# How far a prediction may lie outside the measured interval, as a share of the step (docs/gains.md).
_PREDICTION_ERROR = 0.1
_NO_WIN = "no win measured on this device"
_ONE_PAIR = "the ratio comes from one pair of runs, so its uncertainty is unknown"
SCRIPTS = Path(__file__).parent / "bench" / "scripts"
# Called with a description of the stage that a benchmark has reached.
Stage = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """How to run benchmarks. Traces are written to ``folder``, in one subfolder per benchmark."""

    device: str
    quick: bool
    folder: Path


def prove(benchmark: Benchmark, request: Request, stage: Stage) -> BenchmarkResult:
    """Measure ``benchmark``, run the rules on its traces, and judge both. A failure is returned, not raised."""
    from perftool.bench.harness.launch import BenchmarkError

    folder = request.folder / benchmark.name
    folder.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    reason = why_not_measured(benchmark, request.device, request.quick)
    measurements: tuple[Measurement, ...] = ()
    recorded = proof = None
    try:
        if reason is None:
            measurements, recorded = _measure(benchmark, request, folder, stage)
        if benchmark.script is not None:
            stage("simulating")
            recorded = _simulate(benchmark, benchmark.script, folder)
        if recorded is not None:
            stage("running the rules on the traces of both forms")
            proof = _proof_of_traces(benchmark, recorded, measurements)
    except (BenchmarkError, InputError) as error:
        judged: tuple[BenchmarkStatus, str | None] = ("failed", str(error))
    else:
        judged = judge(benchmark, reason, measurements, proof)
    status, why = judged
    return BenchmarkResult(
        name=benchmark.name,
        rules=benchmark.rules,
        summary=benchmark.summary,
        device=request.device,
        status=status,
        reason=why,
        measurements=measurements,
        proof=proof,
        seconds=time.monotonic() - begin,
    )


def why_not_measured(benchmark: Benchmark, device: str, quick: bool = False) -> str | None:
    """Return why ``benchmark`` cannot be measured on ``device``, or takes too long for ``--quick``. Return None if
    neither is the case."""
    if device not in benchmark.devices:
        return benchmark.reason
    too_long = f"not measured by --quick: {benchmark.not_quick}" if quick and benchmark.not_quick else None
    return benchmark.unavailable() or too_long


def judge(
    benchmark: Benchmark, reason: str | None, measurements: Sequence[Measurement], proof: Proof | None
) -> tuple[BenchmarkStatus, str | None]:
    """Return the status of ``benchmark``, and the reason unless it is simply ``validated``.

    It is ``failed`` if the forms give different results, a rule is silent on the naive form or fires on the advised
    form, or the advice slows down the first size. A benchmark without rules never fails for being slower: its advice
    may help on other devices.
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
        slower = f"the advised form is slower ({measurements[0].ratio.value:.2f})"
        return ("failed", slower) if benchmark.rules else ("skipped", f"{slower} on this device")
    if proof is None:
        return "skipped", reason
    verdicts = {measured.ratio.verdict for measured in measurements}
    is_uncertain = "unknown" in verdicts and measurements[0].ratio.value > 1.0
    if verdicts and "win" not in verdicts and not is_uncertain:
        reason = _NO_WIN
    if proof.simulated:
        return "simulated", f"{CIRCULAR}; {reason or 'the ratio is measured here'}"
    if reason is not None:
        return "skipped", reason
    if benchmark.rules and proof is not None and (why := _disagreement(proof)):
        return "measured", why
    return "validated" if benchmark.rules else "measured", _ONE_PAIR if "win" not in verdicts and is_uncertain else None


def _disagreement(proof: Proof) -> str | None:
    """Return how the measured gain contradicts the predicted or estimated gain, or None if it does not."""
    if proof.gain is None:
        return None
    low, high = proof.interval or (proof.gain, proof.gain)
    between = f" ({format_ratio(low)} to {format_ratio(high)})" if proof.interval else ""
    measured = f"the measured gain is {format_ratio(proof.gain)} of the step{between}"
    if high <= 0:
        return f"not validated: {measured}"
    claimed, bound = proof.gain_predicted, proof.gain_estimated
    if claimed is not None and not low - _PREDICTION_ERROR <= claimed <= high + _PREDICTION_ERROR:
        return f"not validated: predicted {format_ratio(claimed)}, and {measured}"
    if claimed is None and bound is not None and low > bound + _PREDICTION_ERROR:
        return f"not validated: at most {format_ratio(bound)} was estimated, and {measured}"
    return None


def proof_of(
    rules: Iterable[str],
    naive: Sequence[str],
    advised: Sequence[str],
    measured_ratio: float | None = None,
    work: float = 1.0,
) -> Proof:
    """Run all rules on the traces of the two forms, which are simulated unless a measured ratio is given.

    Only the gains of ``rules`` count. ``work`` is the work of an advised step divided by the work of a naive step.
    """
    own = set(rules)
    before, after = analyze(naive), analyze(advised)
    fired, still = _codes(before), _codes(after)
    gains = [finding.gain for finding in before.findings if finding.gain is not None and finding.code in own]
    bounds = [gain.most for gain in gains]
    predicted = [gain.share_of_step for gain in gains if gain.kind == "predicted"]
    return Proof(
        simulated=measured_ratio is None,
        fired_before=tuple(sorted(fired & own)),
        fired_after=tuple(sorted(still & own)),
        newly_fired=tuple(sorted(still - fired - own)),
        gain_estimated=max(bounds, default=None),
        gain_predicted=max(predicted, default=None),
        ratio=_step_ratio(before, after, work) if measured_ratio is None else measured_ratio,
    )


def _codes(report: Report) -> set[str]:
    return {finding.code for finding in report.findings}


def _step_ratio(naive: Report, advised: Report, work: float) -> float | None:
    before, after = _mean_step_ns(naive), _mean_step_ns(advised)
    return before / after * work if before and after else None


def _mean_step_ns(report: Report) -> float | None:
    """Return the mean step time. The median would mislead if the host runs ahead of the device: then most steps are
    short and a few are long."""
    complete = [step.dur_ns for step in report.steps if not step.partial]
    return sum(complete) / len(complete) if complete else None


def _measure(
    benchmark: Benchmark, request: Request, folder: Path, stage: Stage
) -> tuple[tuple[Measurement, ...], Recorded | None]:
    """Measure all sizes (with ``--quick``, the first) and record traces, unless they are to be simulated."""
    from perftool.bench.harness.launch import Plan, measure, measure_and_record

    plan, device, first = Plan.of(request.quick), request.device, benchmark.sizes[0]
    recorded = None
    stage(f"measuring, {first}")
    if benchmark.script is None:
        measured, recorded = measure_and_record(benchmark, device, plan, folder)
    else:
        measured = measure(benchmark, first, device, plan, folder)
    all_measured = [measured]
    for size in () if request.quick else benchmark.sizes:
        if size != first:
            stage(f"measuring, {size}")
            all_measured.append(measure(benchmark, size, device, plan, folder))
        if benchmark.tuned_heap:
            stage(f"measuring, {size}, tuned heap")
            all_measured.append(measure(benchmark, size, device, plan, folder, "tuned"))
    return tuple(all_measured), recorded


def leave_traces(benchmark: Benchmark, device: str, plan: Plan, folder: Path) -> Recorded:
    """Write traces of both forms to ``folder``: simulated if ``benchmark`` has a script, otherwise recorded.

    Raise BenchmarkError or InputError if a form fails.
    """
    from perftool.bench.harness.launch import record_traces

    if benchmark.script is not None:
        return _simulate(benchmark, benchmark.script, folder)
    return record_traces(benchmark, device, plan, folder)


def _proof_of_traces(benchmark: Benchmark, recorded: Recorded, measurements: Sequence[Measurement]) -> Proof:
    from perftool.bench.harness.case import FORM_NAMES

    naive, advised = ([str(path) for path in recorded.files[form]] for form in FORM_NAMES)
    if benchmark.script is not None:
        proof = proof_of(benchmark.rules, naive, advised, work=benchmark.script_work)
        return replace(proof, max_error=recorded.max_error)
    ratio = recorded.ratio or measurements[0].ratio
    interval = (1 - 1 / ratio.low, 1 - 1 / ratio.high) if ratio.confidence and ratio.low > 0 else None
    return replace(proof_of(benchmark.rules, naive, advised, ratio.value), interval=interval)


def _simulate(benchmark: Benchmark, name: str, folder: Path) -> Recorded:
    """Run both forms of the script ``name`` in parallel on a simulated Gaudi. Each writes to its own folder."""
    from perftool.bench.harness.case import FORM_NAMES
    from perftool.bench.harness.launch import Recorded

    script = SCRIPTS / name
    runs = [_start(benchmark, script, form, folder / form) for form in FORM_NAMES]
    try:
        naive, advised = (_result_of(run, f"{script.name} {form}") for run, form in zip(runs, FORM_NAMES, strict=True))
    finally:
        for run in runs:
            run.kill()
    for form in FORM_NAMES:
        leave_settings(benchmark, form, folder / form)
    error = None if naive is None or advised is None else abs(naive - advised) / max(abs(naive), 1e-12)
    return Recorded({form: [folder / form] for form in FORM_NAMES}, ratio=None, max_error=error)


def _start(benchmark: Benchmark, script: Path, form: FormName, folder: Path) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "perftool.sim", "--device", SIMULATED_DEVICE]
    command += ["--skip-steps", str(WARM_UP_STEPS), "-o", str(folder / f"{benchmark.name}.json.gz")]
    return subprocess.Popen([*command, str(script), form], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _result_of(run: subprocess.Popen[str], name: str) -> float | None:
    """Read the result that the script ``name`` prints last, if any. Raise InputError if it fails or is too slow."""
    try:
        stdout, stderr = run.communicate(timeout=_SIMULATION_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise InputError(f"{name} did not finish within {_SIMULATION_TIMEOUT_S:.0f} s") from None
    if run.returncode:
        lines = stderr.strip().splitlines()
        raise InputError(f"{name}: {lines[-1] if lines else f'exit code {run.returncode}'}")
    printed = stdout.split()
    return float(printed[-1]) if printed[-2:-1] == ["result"] else None


def leave_settings(benchmark: Benchmark, form: FormName, folder: Path) -> None:
    """Copy the configuration of ``form``, if the benchmark has one, into the folder of its trace."""
    if benchmark.settings is not None:
        shutil.copyfile(SCRIPTS / benchmark.name / form / benchmark.settings, folder / benchmark.settings)
