"""Finds signs of an accelerator in metadata and logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perftool.model.vendors import backends
from perftool.store.ranks import distributed_info
from perftool.store.readings import Reading


def device_signs(metadata: Mapping[int, Mapping[str, Any]], readings: Sequence[Reading]) -> list[tuple[int, str]]:
    """Return the evidence in metadata and logs that ranks have accelerators, as (rank, evidence)."""
    logged = ["its log"] if from_gaudi_bridge(readings) else []
    return [(rank, sign) for rank, top in metadata.items() for sign in [*_stated(top), *logged]]


def from_gaudi_bridge(readings: Sequence[Reading]) -> bool:
    """Whether a log, metrics, the banner or gaudi_config.json shows that the run used a Gaudi. Other configuration
    files prove nothing."""
    return any(part.reading.fallbacks or part.reading.metrics or part.reading.compilations
               or any(entry.source in ("banner", "gaudi_config") for entry in part.reading.config)
               for part in readings)  # fmt: skip


def _stated(top: Mapping[str, Any]) -> Iterator[str]:
    if top.get("deviceProperties"):
        yield "deviceProperties"
    backend = distributed_info(top).get("backend")
    if isinstance(backend, str) and backend.lower() in backends():
        yield f"the backend {backend.lower()}"
