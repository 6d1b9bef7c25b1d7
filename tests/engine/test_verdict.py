"""The first sentences of a report."""

from __future__ import annotations

from pathlib import Path

from events import Event, document, kernel, launch, runtime, step, x

from perftool.engine.analysis import analyze
from perftool.engine.rules.pack import load_packs
from perftool.model.report import Report, Verdict


def report_of(events: list[Event], folder: Path, without: str = "") -> Report:
    path = folder / "trace.json"
    path.write_bytes(document(events))
    return analyze([str(path)], [rule for rule in load_packs() if rule.code != without])


def test_a_large_cause_without_a_rule_is_the_headline(tmp_path: Path) -> None:
    copying = [runtime("cudaMemcpyAsync", 0, 600), *launch(1, 700, 10, 720, 280)]
    report = report_of([step(1, 0, 1000), *copying], tmp_path, without="SYN105")

    (cause,) = report.verdict.causes
    assert (cause.name, cause.codes, cause.share, cause.ns_per_step) == ("copy", (), 0.6, 600_000)
    assert cause.longest
    assert (cause.longest.ts_ns, cause.longest.dur_ns) == (0, 600_000)
    assert report.verdict.headline.startswith("The device stands idle while the host is inside a copy call: 60.0 %")


def test_what_concerns_the_trace_is_no_advice(tmp_path: Path) -> None:
    report = report_of([x("aten::add", 0, 100), kernel("add", 0, 100)], tmp_path)

    assert [finding.code for finding in report.findings] == ["TRC102"]
    assert report.advice == ()


def test_a_backward_pass_makes_a_training_run(tmp_path: Path) -> None:
    forward = [x("aten::add", 10 * at, 5) for at in range(20)]
    backward = x("autograd::engine::evaluate_function: AddBackward0", 300, 5)

    assert report_of(forward, tmp_path).run.kind == "inference"
    assert report_of([*forward, backward], tmp_path).run.kind == "training"


def test_forward_ops_that_autograd_numbers_may_be_either(tmp_path: Path) -> None:
    numbered = [x("aten::add", 10 * at, 5, **{"Sequence number": at}) for at in range(20)]

    assert report_of(numbered, tmp_path).run.kind is None


def test_a_busy_device_may_still_be_far_from_its_best(tmp_path: Path) -> None:
    device = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 84_929_347_584}]}

    def told(elements: int) -> Verdict:
        shapes = {"Input Dims": [[elements], [elements]], "Input type": ["float", "float"]}
        events = [step(1, 0, 1000), x("aten::add", 0, 20, **shapes), *launch(1, 5, 5, 15, 985)]
        path = tmp_path / f"{elements}.json"
        path.write_bytes(document(events, **device))
        return analyze([str(path)]).verdict

    # Two reads and a write of 4 bytes each, at 3.35 TB/s: 358 us, and 895 us.
    far, near = told(100_000_000), told(250_000_000)
    assert "of the time, but only at 36.4 % of what it could do, " in far.headline
    assert far.detail == (
        "985 us of 1.00 ms go to pointwise, normalisation and copy kernels between the products. Its work: aten::add "
        "100.0 %, at 36.4 % of its best. At the rates that the device reaches on good shapes 57.2 % of it would go."
    )
    assert near.headline.startswith("The device is the limit")
    assert "could do" not in near.headline + near.detail


def test_a_trace_without_work_has_no_times(tmp_path: Path) -> None:
    assert report_of([], tmp_path).verdict.detail == "No event of the trace shows work, so no times are known."


def test_the_parts_of_a_step_on_the_cpu_add_up(tmp_path: Path) -> None:
    (only,) = report_of([step(1, 0, 1000), x("aten::mm", 10, 500), x("aten::to", 600, 100)], tmp_path).steps

    assert only.breakdown_ns["cpu_op"] == 600_000
    assert {part: ns for part, ns in only.parts_ns.items() if ns} == {
        "kernel": 500_000,
        "cpu_op": 100_000,
        "other": 400_000,
    }
