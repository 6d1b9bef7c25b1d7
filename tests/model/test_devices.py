"""Names in traces identify devices. Every figure about a device must state its source."""

from __future__ import annotations

import pytest

from perftool.model.devices import find_device, known_devices

GIB = 1024**3


@pytest.mark.parametrize(
    ("spelling", "memory", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", 84_990_623_744, "NVIDIA A100-SXM4-80GB"),
        ("A100-SXM4-40GB", 42_405_855_232, "NVIDIA A100-SXM4-40GB"),
        ("NVIDIA H100 80GB HBM3", 85_018_279_936, "NVIDIA H100 80GB HBM3"),
        ("AMD Instinct MI300X VF", 205_571_227_648, "AMD Instinct MI300X"),
        ("AMD Instinct MI300X", None, "AMD Instinct MI300X"),
        ("Tesla T4", 15_109 * 1024**2, "Tesla T4"),
        ("GAUDI2", None, "GAUDI2"),
        # Names that several devices share, and names that identify no device.
        ("NVIDIA H100", 85_018_279_936, None),
        ("NVIDIA A100-PG509-200", 42_297_524_224, "NVIDIA A100-PG509-200"),
        # Drivers without a table of products report this name.
        ("AMD Radeon Graphics", 64 * GIB, None),
        ("AMD Radeon Graphics", 68_702_699_520, None),
        ("NVIDIA A10G", 24 * GIB, None),
        # A partition of a device.
        ("NVIDIA A100-SXM4-80GB", 10 * GIB, None),
    ],
)
def test_a_name_means_one_device_or_none(spelling: str, memory: int | None, name: str | None) -> None:
    found = find_device(spelling, memory)

    assert (found.name if found else None) == name


def test_names_and_spellings_mean_one_device_each() -> None:
    spellings = [text for device in known_devices() for text in device.spellings or (device.name,)]
    names = [device.name for device in known_devices()]

    assert len(set(spellings)) == len(spellings)
    assert len(set(names)) == len(names)
    assert [device.name for device in known_devices() if device.name not in (device.spellings or (device.name,))] == []


def test_each_peak_has_a_source_and_narrower_types_are_not_slower() -> None:
    order = ["fp64", "fp32", "tf32", "bf16", "fp16", "fp8"]
    for device in known_devices():
        rates = {peak.dtype: peak.rate for peak in device.peaks if peak.unit == "matrix"}
        present = [rates[dtype] for dtype in order if dtype in rates]

        assert device.source
        assert all(peak.source for peak in device.peaks)
        assert present == sorted(present), device.name
