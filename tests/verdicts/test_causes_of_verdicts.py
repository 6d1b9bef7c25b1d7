"""Small traces for each cause that once made a verdict wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from events import Event, document, kernel, launch, loader, memcpy, runtime, step, x

from perftool.engine.analysis import analyze
from perftool.model.report import Report


def report_of(events: list[Event], folder: Path) -> Report:
    path = folder / "trace.json"
    path.write_bytes(document(events))
    return analyze([str(path)])


def test_before_its_first_recorded_work_a_device_with_a_queue_is_not_idle(tmp_path: Path) -> None:
    copy = [runtime("cudaMemcpyAsync", 0, 10, 1), memcpy("Memcpy HtoD (Pinned -> Device)", 6000, 1000, 1)]
    report = report_of([step(1, 0, 10000), *copy, *launch(2, 20, 5, 7000, 3000)], tmp_path)

    assert report.summary["device_unknown_ratio"].value == 0.6
    assert report.summary["device_idle_ratio"].value == 0.0
    assert report.idle_causes == ()


def test_a_device_that_begins_at_once_was_idle_before(tmp_path: Path) -> None:
    report = report_of([step(1, 0, 10000), x("aten::add", 0, 6000), *launch(1, 6000, 10, 6010, 3990)], tmp_path)

    assert report.summary["device_unknown_ratio"].value == 0.0
    assert report.summary["device_idle_ratio"].value == pytest.approx(0.601)


def test_a_fetch_counts_whole_though_the_device_still_works_for_the_step_before(tmp_path: Path) -> None:
    first = [step(1, 0, 1000), *launch(1, 900, 5, 905, 595)]
    second = [step(2, 1000, 2000), loader(1000, 1500), *launch(2, 2500, 5, 2505, 495)]
    report = report_of([*first, *second], tmp_path)

    (finding,) = (finding for finding in report.findings if finding.code == "GAP102")
    assert finding.evidence["wait_ns"] == 1_500_000
    assert report.summary["dataloader_ratio"].value == finding.evidence["wait_ratio"]
    # Over and over, the two steps take 3 ms; without the fetch the host needs 1.5 ms for both, the device 1.1 ms.
    assert finding.gain is not None
    assert (finding.gain.kind, finding.gain.ns_per_step) == ("predicted", 1_500_000 // 2)


def test_faster_kernels_give_nothing_where_the_host_sets_the_pace(tmp_path: Path) -> None:
    events: list[Event] = [step(1, 0, 10000)]
    for at in range(10):
        op = x("aten::mm", 1000 * at, 990, **{"Input type": ["float", "float"]})
        events += [op, *launch(at + 1, 1000 * at + 980, 5, 1000 * at + 985, 900, "ampere_sgemm_128x64_tn")]
    report = report_of([*events, kernel("last", 9990, 10)], tmp_path)

    found = [finding for finding in report.findings if finding.code == "PRC101"]
    assert [finding.gain and finding.gain.share_of_step < 0.09 for finding in found] == [True]
