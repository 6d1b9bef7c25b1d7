"""Which kind of device a run used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perftool.model.report import Device
from perftool.model.vendors import accelerators, type_of_name
from perftool.store.trace_store import TraceStore

# The vendors that categories, lanes and host calls show, when the metadata is silent.
_SIGNS = """
WITH seen AS (
    SELECT DISTINCT 'category' AS subject, cat AS name FROM raw
    UNION ALL SELECT DISTINCT 'process', process FROM tracks
    UNION ALL SELECT 'runtime', name FROM _names WHERE cat = 'runtime'
)
SELECT DISTINCT v.vendor
FROM seen AS s JOIN _vocabulary AS v ON v.subject = s.subject AND v.role = 'sign' AND lower(s.name) GLOB v.pattern
"""
# Device work that no vendor's sign comes with: the categories are those that Kineto has for GPUs.
_UNSIGNED = "cuda"


@dataclass(frozen=True)
class DeviceSigns:
    """What tells the device of a run.

    ``names`` are those in the metadata of its traces, ``by_event`` is the type its events show, ``devices`` how many
    did work and ``by_text`` the type that logs alone speak of.
    """

    names: tuple[str, ...]
    by_event: str | None
    devices: int
    has_work: bool
    has_trace: bool
    by_text: str | None


def detect_device(store: TraceStore) -> Device:
    """The device of the run; type ``cpu`` when the trace shows host work alone, None when it shows nothing."""
    return decide_device([device_signs(store)])


def device_signs(store: TraceStore) -> DeviceSigns:
    """What the inputs of ``store`` say about the device."""
    store.build(["slices", "tracks", "device_ops", "_names"])
    tracks = store.select("SELECT count(DISTINCT (rank, device)) AS n FROM device_ops WHERE device IS NOT NULL")
    return DeviceSigns(
        names=tuple(name for metadata in store.metadata.values() if (name := _first_device(metadata))),
        by_event=_type_of_events(store) if store.has_rows("slices") else None,
        devices=tracks[0]["n"],
        has_work=store.has_rows("device_ops"),
        has_trace=bool(store.inputs),
        by_text="hpu" if _speaks_of_gaudi(store) else None,
    )


def decide_device(signs: Sequence[DeviceSigns]) -> Device:
    """The device of a run whose ranks give ``signs``."""
    names = [name for sign in signs for name in sign.names]
    if not any(sign.has_trace for sign in signs):
        return Device(next((sign.by_text for sign in signs if sign.by_text), None), None, 0)
    shown = {sign.by_event for sign in signs}
    by_event = next((kind for kind in (*accelerators(), "cpu") if kind in shown), None)
    by_name = next((kind for kind in map(type_of_name, names) if kind), None)
    name = names[0] if names else None
    if by_event in ("cpu", None) and not any(sign.has_work for sign in signs):
        # A device that did nothing in the recording is still the run's device, if its metadata names it.
        return Device(by_name or by_event, name, 0)
    return Device(by_name or by_event, name, max(sum(sign.devices for sign in signs), 1))


def _type_of_events(store: TraceStore) -> str:
    signed = {row["vendor"] for row in store.select(_SIGNS)}
    return next(
        (kind for kind in accelerators() if kind in signed), _UNSIGNED if store.has_rows("device_ops") else "cpu"
    )


def _speaks_of_gaudi(store: TraceStore) -> bool:
    """Whether logs, metrics or a banner come from the Gaudi bridge; configuration alone does not tell."""
    return any(part.reading.fallbacks or part.reading.metrics or part.reading.compilations
               or any(entry.source in ("banner", "gaudi_config") for entry in part.reading.config)
               for part in store.readings)  # fmt: skip


def _first_device(metadata: dict[str, Any]) -> str | None:
    devices = metadata.get("deviceProperties")
    if isinstance(devices, list) and devices and isinstance(devices[0], dict):
        return str(devices[0].get("name") or "") or None
    return None
