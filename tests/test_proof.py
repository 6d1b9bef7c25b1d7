"""How benchmarks are judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from builders.benchmark_results import measurement, proof

from perftool.model.benchmark import Measurement, Proof, Ratio

pytest.importorskip("torch")

from perftool.bench.fused_optimizers import BENCHMARKS
from perftool.proof import CIRCULAR, Request, judge, prove, why_not_measured

BENCHMARK = BENCHMARKS["fused_adamw"]
WIN = measurement()
NO_WIN = measurement(Ratio(1.0, 0.9, 1.1, 0.97))
LOSS = measurement(Ratio(0.5, 0.4, 0.6, 0.97))
ONE_PAIR = measurement(Ratio(2.0, 2.0, 2.0, 0.0))
ONE_PAIR_SLOWER = measurement(Ratio(0.5, 0.5, 0.5, 0.0))
WRONG = measurement(max_error=0.5)
NOT_A_NUMBER = measurement(max_error=float("nan"))
SURE_OF_NOTHING = "the ratio comes from one pair of runs, so its uncertainty is unknown"
APART = replace(proof(simulated=True), max_error=0.25)
DEVICE = "needs a device with asynchronous execution"


@pytest.mark.parametrize(
    ("reason", "measurements", "shown", "expected"),
    [
        (None, [WIN], proof(), ("validated", None)),
        (None, [NO_WIN, WIN], proof(), ("validated", None)),
        (None, [WIN], replace(proof(), interval=(0.4, 0.6)), ("validated", None)),
        (
            None,
            [WIN],
            replace(proof(), ratio=0.96),
            ("measured", "not validated: the measured gain is -4.2 % of the step"),
        ),
        (
            None,
            [WIN],
            replace(proof(), ratio=1.1, interval=(0.05, 0.13)),
            (
                "measured",
                "not validated: predicted 55.0 %, and the measured gain is 9.1 % of the step (5.0 % to 13.0 %)",
            ),
        ),
        (
            None,
            [WIN],
            replace(proof(), gain_predicted=None, gain_estimated=0.2),
            (
                "measured",
                "not validated: at most 20.0 % was estimated, and the measured gain is 50.0 % of the step",
            ),
        ),
        (None, [NO_WIN], proof(), ("skipped", "no win measured on this device")),
        (None, [ONE_PAIR], proof(), ("validated", SURE_OF_NOTHING)),
        (None, [ONE_PAIR_SLOWER], proof(), ("skipped", "no win measured on this device")),
        (None, [LOSS], proof(), ("failed", "the advised form is slower (0.50)")),
        (None, [WIN, WRONG], proof(), ("failed", "results differ by 0.5, more than 1e-05 (size small)")),
        (None, [NOT_A_NUMBER], proof(), ("failed", "results differ by nan, more than 1e-05 (size small)")),
        (None, [WIN], proof(before=()), ("failed", "FUS101 did not fire on the naive form")),
        (None, [WIN], proof(after=("FUS101",)), ("failed", "FUS101 still fires on the advised form")),
        (DEVICE, [], None, ("skipped", DEVICE)),
        (DEVICE, [], proof(simulated=True), ("simulated", f"{CIRCULAR}; {DEVICE}")),
        (None, [NO_WIN], proof(simulated=True), ("simulated", f"{CIRCULAR}; no win measured on this device")),
        (DEVICE, [], APART, ("failed", "the simulated scripts' results differ by 0.25")),
    ],
)
def test_a_row_is_judged(
    reason: str | None, measurements: Sequence[Measurement], shown: Proof | None, expected: tuple[str, str | None]
) -> None:
    assert judge(BENCHMARK, reason, measurements, shown) == expected


def test_a_measured_row_with_simulated_traces_is_called_simulated() -> None:
    status, reason = judge(BENCHMARK, None, [WIN], proof(simulated=True))

    assert status == "simulated"
    assert reason == f"{CIRCULAR}; the ratio is measured here"


@pytest.mark.parametrize(
    ("measured", "expected"), [(WIN, "measured"), (NO_WIN, "skipped"), (LOSS, "skipped"), (ONE_PAIR, "measured")]
)
def test_advice_without_a_rule_is_measured(measured: Measurement, expected: str) -> None:
    status, _ = judge(replace(BENCHMARK, rules=()), None, [measured], proof(before=()))

    assert status == expected


def test_slow_benchmarks_are_left_out_of_a_quick_run() -> None:
    slow = replace(BENCHMARK, not_quick="compiles for a minute")

    assert why_not_measured(slow, "cpu") is None
    assert why_not_measured(slow, "cpu", quick=True) == "not measured by --quick: compiles for a minute"


def test_a_missing_device_feature_is_a_reason_to_skip() -> None:
    elsewhere = replace(BENCHMARK, devices=("cuda",), reason=DEVICE)
    unsuited = replace(BENCHMARK, unavailable=lambda: "the processor has no bf16")

    assert why_not_measured(BENCHMARK, "cpu") is None
    assert why_not_measured(elsewhere, "cpu") == DEVICE
    assert why_not_measured(unsuited, "cpu") == "the processor has no bf16"


def test_a_benchmark_that_crashes_is_a_failed_row(tmp_path: Path) -> None:
    broken = replace(
        BENCHMARK, sizes=("no such size",), environment=lambda _: {"PYTHONPATH": "", "PYTHONHOME": "/none"}
    )

    result = prove(broken, Request("cpu", True, tmp_path), lambda stage: None)

    assert result.status == "failed"
    assert result.reason is not None
    assert result.reason.startswith("fused_adamw: ")


def test_rules_fire_on_the_naive_form_only(tmp_path: Path) -> None:
    stages: list[str] = []

    result = prove(BENCHMARK, Request("cpu", True, tmp_path), stages.append)

    assert stages == ["measuring, small", "running the rules on the traces of both forms"]
    assert result.proof is not None
    # Whether the measured gain confirms the claim depends on how busy the machine is.
    assert result.status in ("validated", "measured")
    assert (result.proof.fired_before, result.proof.fired_after) == (("FUS101",), ())
    assert sorted(path.name for path in (tmp_path / "fused_adamw").glob("*.gz")) == [
        "fused_adamw-advised.json.gz",
        "fused_adamw-naive.json.gz",
    ]
