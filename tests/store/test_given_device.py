"""A device named by the user replaces the device in the trace."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from events import document, launch, step, x

from perftool.api import analyze
from perftool.engine.analysis import analysed
from perftool.errors import InputError
from perftool.model.devices import device_named
from perftool.model.report import Report
from perftool.readers.discover import find_inputs
from perftool.store.requested_device import find_requested, read_device

BF16 = "c10::BFloat16"
OWN = """
name = "My card"
memory_bandwidth = 1e12
peaks = [{ dtype = "bf16", unit = "matrix", rate = 200e12 }]
"""


@pytest.fixture
def report_of(tmp_path: Path) -> Callable[..., Report]:
    """Return a function that reports on a 4096^3 matmul of 1 ms. Its arguments are the user's device and the trace's
    metadata.
    """

    def asked(given: str | None, **named: Any) -> Report:
        shapes = {"Input Dims": [[4096, 4096], [4096, 4096]], "Input type": [BF16, BF16]}
        events = [step(1, 0, 1100), x("aten::mm", 1, 10, **shapes), *launch(1, 2, 5, 20, 1000, "gemm")]
        path = tmp_path / "trace.json"
        path.write_bytes(document(events, **named))
        with analysed(replace(find_inputs([str(path)]), device=given), []) as run:
            return run.report

    return asked


def reached(report: Report) -> float | None:
    assert report.efficiency is not None
    return report.efficiency.ops[0].roofline_ratio


def test_a_name_gives_a_trace_without_one_its_peaks(report_of: Callable[..., Report]) -> None:
    report = report_of("H100")
    # 137.4 GFLOP in 1 ms, at a peak of 989.4 TFLOP/s.
    assert reached(report) == pytest.approx(0.1389, abs=0.0001)
    assert (report.device.type, report.device.name) == ("cuda", "NVIDIA H100 80GB HBM3")
    assert reached(report_of(None)) is None


def test_a_given_device_takes_precedence_over_the_name_in_the_trace(report_of: Callable[..., Report]) -> None:
    named = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}
    report = report_of("MI300X", **named)
    assert reached(report) == pytest.approx(0.1051, abs=0.0001)
    assert (report.device.type, report.device.name) == ("rocm", "AMD Instinct MI300X")


@pytest.mark.parametrize(
    ("stated", "units", "capability"), [({}, 132, 90), ({"numSms": 78, "computeMajor": 9, "computeMinor": 2}, 78, 92)]
)
def test_compute_units_are_the_published_ones_unless_the_trace_states_them(
    tmp_path: Path, stated: dict[str, int], units: int, capability: int
) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(
        document([step(1, 0, 10)], deviceProperties=[{"id": 0, "name": "NVIDIA H100 80GB HBM3", **stated}])
    )
    with analysed(find_inputs([str(path)]), []) as run:
        (device,) = run.store.rows("devices")
    assert (device["units"], device["capability"]) == (units, capability)


def test_a_given_device_has_its_published_compute_units(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(document([step(1, 0, 10)]))
    with analysed(replace(find_inputs([str(path)]), device="MI300X"), []) as run:
        (device,) = run.store.rows("devices")
    assert (device["units"], device["capability"]) == (304, None)


def test_the_given_device_applies_to_every_rank(tmp_path: Path) -> None:
    shapes = {"Input Dims": [[4096, 4096], [4096, 4096]], "Input type": [BF16, BF16]}
    events = [step(1, 0, 1100), x("aten::mm", 1, 10, **shapes), *launch(1, 2, 5, 20, 1000, "gemm")]
    for rank in range(2):
        ranks = {"distributedInfo": {"rank": rank, "world_size": 2}}
        (tmp_path / f"rank{rank}.json").write_bytes(document(events, **ranks))
    report = analyze(str(tmp_path), [], device="H100")
    assert reached(report) == pytest.approx(0.1389, abs=0.0001)
    assert (report.device.type, report.device.name) == ("cuda", "NVIDIA H100 80GB HBM3")


def test_a_file_of_peaks_is_a_device(report_of: Callable[..., Report], tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    report = report_of(str(path))
    assert reached(report) == pytest.approx(0.6872, abs=0.0001)
    assert report.efficiency is not None
    (peak,) = report.efficiency.peaks
    assert (peak.device, peak.rate, peak.bandwidth, peak.source) == ("My card", 200e12, 1e12, "measured, own.toml")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("h100", "NVIDIA H100 80GB HBM3"), ("H100 PCIe", "NVIDIA H100 PCIe"), ("GAUDI2", "GAUDI2"), ("GAUDI", "GAUDI"),
        ("mi300x", "AMD Instinct MI300X"), ("A100", "NVIDIA A100-SXM4-80GB"), ("Intel Gaudi 3", "GAUDI3"),
        ("AMD Instinct MI300X VF", "AMD Instinct MI300X"), ("L4", "NVIDIA L4"),
    ],
)  # fmt: skip
def test_common_names_of_devices_are_known(text: str, name: str) -> None:
    found = device_named(text)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("text", ["NVIDIA", "", "H1000", "MI300", "A100 HBM9"])
def test_an_unknown_name_lists_the_known_ones(text: str) -> None:
    with pytest.raises(InputError, match=r"is unknown; use one of GAUDI, .*MTIA 2i, or a peaks file"):
        find_requested(text)


@pytest.mark.parametrize(
    "text",
    [
        "name =", "", OWN.replace("1e12", "-1"), OWN.replace("1e12", "inf"), OWN.replace("200e12", "nan"),
        OWN.replace("matrix", "tensor"), OWN.replace('"bf16"', "16"), OWN.split("peaks")[0],
        OWN.replace("My card", " "), OWN.replace("1e12", "5e-324"),
        "\0", "a = " + "[" * 10_000, 'name = "x"\nmemory_bandwidth = 1\npeaks = [1]',
    ],
)  # fmt: skip
def test_the_error_about_a_file_without_peaks_names_what_it_lacks(text: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"own\.toml: .*peaks"):
        read_device(str(path))
    with pytest.raises(InputError, match="not a valid peaks file"):
        read_device(str(tmp_path / "none.toml"))


def test_a_file_of_peaks_is_a_regular_one_of_a_megabyte(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(InputError, match=r"pipe\.toml: not a valid peaks file: not a regular file"):
        read_device(str(tmp_path / "pipe.toml"))
    with open(tmp_path / "long.toml", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InputError, match=r"long\.toml: not a valid peaks file: larger than 1 MiB"):
        read_device(str(tmp_path / "long.toml"))
