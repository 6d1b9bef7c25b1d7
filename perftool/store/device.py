"""Detects the device of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perftool.model.report import Device
from perftool.model.vendors import accelerators, type_of_name, type_of_unsigned
from perftool.store.device_signs import from_gaudi_bridge
from perftool.store.trace_store import TraceStore

# The vendors that can be recognised by categories, processes, host calls or slices without a category.
_SIGNS = """
WITH seen AS (
    SELECT DISTINCT 'category' AS subject, cat AS name FROM raw
    UNION ALL SELECT DISTINCT 'process', process FROM _engine_processes
    UNION ALL SELECT 'runtime', name FROM _name_roles WHERE cat = 'runtime'
    UNION ALL SELECT DISTINCT 'uncategorised', name::VARCHAR FROM slices WHERE cat = ''
)
SELECT DISTINCT v.vendor
FROM seen AS s JOIN _vocabulary AS v ON v.subject = s.subject AND v.role = 'sign' AND lower(s.name) GLOB v.pattern
"""
_OPS = "SELECT 1 FROM slices WHERE cat = 'cpu_op' AND rank NOT IN (FROM _cpu_runs) LIMIT 1"
_ELSEWHERE = "SELECT 1 FROM device_ops WHERE op IS DISTINCT FROM id LIMIT 1"


@dataclass(frozen=True)
class DeviceSigns:
    """The evidence for the device of a run.

    ``names``: device names from the user; if there are none, from metadata; failing that, from lanes.
    ``by_event``: the device type according to events.
    ``devices``: the number of devices with work.
    ``by_text``: the device type according to logs.
    ``lost``: whether the run used a device whose events are missing from the traces.
    """

    names: tuple[str, ...]
    by_event: str | None
    devices: int
    has_work: bool
    has_trace: bool
    by_text: str | None
    lost: bool = False


def detect_device(store: TraceStore) -> Device:
    """Detect the device of the run. Its type is ``cpu`` if the run used only the host, and None if it is unknown."""
    return decide_device([device_signs(store)])


def device_signs(store: TraceStore) -> DeviceSigns:
    """Return the evidence in ``store`` for the device."""
    store.build(["slices", "_engine_processes", "device_ops", "_name_roles", "known_devices", "_cpu_runs"])
    tracks = store.select("SELECT count(DISTINCT (rank, device)) AS n FROM device_ops WHERE device IS NOT NULL")
    named = tuple(part.reading.device.name for part in store.readings if part.reading.device)
    return DeviceSigns(
        names=named
        or tuple(name for metadata in store.metadata.values() if (name := _first_device(metadata)))
        or tuple(row["device"] for row in store.select("SELECT DISTINCT device FROM known_devices ORDER BY device")),
        by_event=_type_of_events(store) if store.has_rows("slices") else None,
        devices=tracks[0]["n"],
        has_work=store.has_rows("device_ops"),
        has_trace=bool(store.inputs),
        by_text="hpu" if from_gaudi_bridge(store.readings) else None,
        lost=not store.has_rows("device_ops") and bool(store.select(_OPS)),
    )


def decide_device(signs: Sequence[DeviceSigns]) -> Device:
    """Determine the device of a run from the ``signs`` of its ranks."""
    names = [name for sign in signs for name in sign.names]
    if not any(sign.has_trace for sign in signs):
        return Device(next((sign.by_text for sign in signs if sign.by_text), None), None, 0)
    shown = {sign.by_event for sign in signs}
    by_event = next((kind for kind in (*accelerators(), "cpu") if kind in shown), None)
    name = names[0] if names else None
    if by_event == "cpu" and any(sign.has_work for sign in signs):
        # Do not derive the type from the name, because vendors of accelerators also make CPUs.
        return Device(by_event, name, 1)
    by_name = next((kind for kind in map(type_of_name, names) if kind), None)
    if by_event in ("cpu", None) and not any(sign.has_work for sign in signs):
        # A device in the metadata is the run's device even if it was idle.
        return Device(by_name or (None if any(sign.lost for sign in signs) else by_event), name, 0)
    return Device(by_name or by_event, name, max(sum(sign.devices for sign in signs), 1))


def _type_of_events(store: TraceStore) -> str | None:
    signed = {row["vendor"] for row in store.select(_SIGNS)}
    if shown := next((kind for kind in accelerators() if kind in signed), None):
        return shown
    return type_of_unsigned() if store.select(_ELSEWHERE) else "cpu"


def _first_device(metadata: dict[str, Any]) -> str | None:
    devices = metadata.get("deviceProperties")
    if isinstance(devices, list) and devices and isinstance(devices[0], dict):
        name = devices[0].get("name")
        return name if isinstance(name, str) and name else None
    return None
