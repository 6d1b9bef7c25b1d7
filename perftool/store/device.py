"""Which kind of device a run used."""

from __future__ import annotations

from typing import Any

from perftool.model.report import Device
from perftool.store.trace_store import TraceStore

# What the name of a device in the trace's metadata starts with or holds, and the type that means.
_NAMES = (
    ("GAUDI", "hpu"), ("HPU", "hpu"), ("NVIDIA", "cuda"), ("TESLA", "cuda"), ("GEFORCE", "cuda"), ("AMD", "rocm"),
    ("RADEON", "rocm"), ("INSTINCT", "rocm"), ("INTEL", "xpu"), ("ARC", "xpu"), ("MTIA", "mtia"),
)  # fmt: skip
# What the events say when the metadata is silent: a pattern in the raw category, or in the name of a host call.
_EVENTS = """
SELECT CASE WHEN bool_or(lower(t.process) LIKE '/device:hpu%') THEN 'hpu'
            WHEN bool_or(lower(r.cat) LIKE 'mtia%') THEN 'mtia'
            WHEN bool_or(lower(r.cat) LIKE 'xpu%') THEN 'xpu'
            WHEN bool_or(lower(r.cat) = 'cuda_runtime' AND starts_with(r.name, 'hip')) THEN 'rocm'
            WHEN bool_or(lower(r.cat) IN ('cuda_runtime', 'cuda_driver')) THEN 'cuda'
            WHEN bool_or(s.side = 'device' AND s.cat = 'kernel') THEN 'cuda'
            ELSE 'cpu' END AS type
FROM (SELECT DISTINCT track, cat, side, first(id) AS id FROM slices GROUP BY ALL) AS s
JOIN raw AS r ON r.rowid = s.id JOIN tracks AS t ON t.id = s.track
"""


def detect_device(store: TraceStore) -> Device:
    """The device of the run; type ``cpu`` when the trace shows host work alone, None when it shows nothing."""
    named = [name for metadata in store.metadata.values() if (name := _first_device(metadata))]
    tracks = store.select("SELECT count(DISTINCT (rank, device)) AS n FROM device_ops WHERE device IS NOT NULL")
    seen = store.select(_EVENTS)
    by_event = seen[0]["type"] if seen and store.has_rows("slices") else None
    by_name = next((kind for name in named for part, kind in _NAMES if part in name.upper()), None)
    has_work = store.has_rows("device_ops")
    if not store.inputs:
        return Device("hpu" if _speaks_of_gaudi(store) else None, None, 0)
    if by_event in ("cpu", None) and not has_work:
        # A device that did nothing in the recording is still the run's device, if its metadata names it.
        return Device(by_name or by_event, named[0] if named else None, 0)
    return Device(by_name or by_event, named[0] if named else None, max(tracks[0]["n"], 1))


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
