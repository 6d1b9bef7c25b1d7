"""Writes the measured peaks of this machine's device as a file for the option --device."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import torch

from perftool.errors import PerfToolError
from perftool.integrations.peaks import Peaks, measured_peaks
from perftool.model.processors import processor_name
from perftool.units import quantity

# Seconds per kind of work: enough for clocks to settle and for an undisturbed run.
_SECONDS = 1.0


def peaks_document(device: str) -> str:
    """Measure the peaks of ``device`` (cpu, cuda, hpu), and return them as TOML, like an entry of devices.toml."""
    peaks = measured_peaks(_SECONDS, device)
    if "fp32" not in peaks.products or peaks.memory_bandwidth is None:
        raise PerfToolError(
            "other processes keep the cores busy: no matmul or copy ran undisturbed, so no rate was measured"
        )
    return written(_name(device), device, peaks, datetime.now(timezone.utc))


def written(name: str, kind: str, peaks: Peaks, when: datetime) -> str:
    """Return the ``peaks`` of the device ``name``, measured at the time ``when``, as TOML."""
    threads = f", {quantity(torch.get_num_threads(), 'thread', 'threads')}" if kind == "cpu" else ""
    source = f"measured on {when:%Y-%m-%d} with PyTorch {torch.__version__}{threads}"
    rates = [("matrix", dtype, rate) for dtype, rate in peaks.products.items()]
    # 32-bit matmuls run on the vector units of a CPU.
    rates += [("vector", "fp32", peaks.products["fp32"])] if kind == "cpu" else []
    lines = [
        "# Rates in FLOP/s, bandwidth in bytes/s. For: habana_perf_tool analyze TRACE --device THIS_FILE",
        f"name = {json.dumps(name)}",
        f"type = {json.dumps('rocm' if kind == 'cuda' and torch.version.hip else kind)}",
        f"source = {json.dumps(source)}",
        f"memory_bandwidth = {peaks.memory_bandwidth:.4g}",
        "peaks = [",
        *(f'    {{ dtype = "{dtype}", unit = "{unit}", rate = {rate:.4g} }},' for unit, dtype, rate in rates),
        "]",
    ]
    return "\n".join(lines) + "\n"


def _name(device: str) -> str:
    if device == "cpu":
        return processor_name() or "CPU"
    return str(torch.get_device_module(device).get_device_name())
