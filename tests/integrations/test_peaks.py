"""The measured peaks of this machine are plausible and have the format that --device reads."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from pathlib import Path

import pytest
import torch

from perftool.errors import PerfToolError
from perftool.integrations import peaks_file
from perftool.integrations.peaks import Peaks, measured_peaks
from perftool.integrations.peaks_file import written
from perftool.model.devices import Peak
from perftool.store.requested_device import read_device


def test_the_written_peaks_are_read_as_a_device(tmp_path: Path) -> None:
    path = tmp_path / "peaks.toml"
    peaks = Peaks({"fp32": 123.45e9, "bf16": 1e12}, 20.5e9)
    path.write_text(written('A "fast" CPU', "cpu", peaks, datetime(2026, 11, 23, tzinfo=timezone.utc)))
    found = read_device(str(path))
    assert (found.name, found.type, found.memory_bandwidth) == ('A "fast" CPU', "cpu", 20.5e9)
    assert found.source.startswith("measured on 2026-11-23 with PyTorch ")
    assert [(peak.dtype, peak.unit, peak.rate) for peak in found.peaks] == [
        ("fp32", "matrix", 123.4e9), ("bf16", "matrix", 1e12), ("fp32", "vector", 123.4e9),
    ]  # fmt: skip
    assert isinstance(found.peaks[0], Peak)


def test_a_product_and_a_copy_have_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    # If CPU time equals wall time, the measurement does not notice that the machine is busy.
    monkeypatch.setattr(time, "process_time", time.perf_counter)
    found = measured_peaks(0.001)
    # Even the slowest machine exceeds ten million multiplications a second, and none reaches a PFLOP/s.
    assert set(found.products) == {"fp32", "bf16"}
    assert all(1e7 < rate < 1e15 for rate in found.products.values())
    assert found.memory_bandwidth is not None
    assert 1e7 < found.memory_bandwidth < 1e13


def test_a_measurement_without_a_core_gives_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "process_time", lambda: 0.0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(peaks_file, "_SECONDS", 0.001)

    assert measured_peaks(0.001) == Peaks({}, None)
    with pytest.raises(PerfToolError, match="other processes keep the cores busy"):
        peaks_file.peaks_document("cpu")
