"""The small tables that are not derived by queries: the inputs, what they say about the run, and built-in facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perftool.model import vendors
from perftool.model.inputs import InputFile
from perftool.model.metrics import metric_kinds
from perftool.model.valid_text import valid_text
from perftool.op_costs.model import KINDS
from perftool.store.device_signs import device_signs
from perftool.store.facts import device_facts, named_devices
from perftool.store.machines import (
    cpu_facts,
    ignored_targets_of,
    loader_calls_of,
    machines_of,
    memory_faults_of,
    op_speeds_of,
    padded_inputs_of,
    repeated_calls_of,
    threads_of,
    trials_of,
)
from perftool.store.ranks import ranks_of_run
from perftool.store.readings import Reading, reading_tables, with_rows_limited


def source_tables(
    traces: Sequence[InputFile],
    readings: Sequence[Reading],
    metadata: Mapping[int, Mapping[str, Any]],
    unreadable: Sequence[InputFile],
) -> dict[str, Sequence[tuple[Any, ...]]]:
    """The rows of each table. ``metadata`` contains the metadata of ``traces``, by rank."""
    readings = with_rows_limited(readings)
    inputs = [*traces, *(part.as_input() for part in readings)]
    device = next((part.reading.device for part in readings if part.reading.device), None)
    facts = [(read.path, read.kind, read.rank, read.bytes, read.events, read.status) for read in inputs]
    issues = [(read.path, i.kind, i.count, i.bytes, i.offset, i.message) for read in inputs for i in read.issues]
    tables = {
        "_vocabulary": _vocabulary(),
        "_lanes": _lane_patterns(),
        "_metric_units": [(kind.name, kind.unit) for kind in metric_kinds()],
        "device_facts": [*device_facts(device), *cpu_facts(metadata)],
        "op_kinds": [(name, kind) for kind, models in KINDS.items() for name in models],
        "devices": named_devices(metadata, device),
        "machines": machines_of(metadata),
        "machine_threads": threads_of(metadata),
        "memory_faults": memory_faults_of(metadata),
        "op_speeds": op_speeds_of(metadata),
        "repeated_calls": repeated_calls_of(metadata),
        "padded_inputs": padded_inputs_of(metadata),
        "ignored_targets": ignored_targets_of(metadata),
        "loader_calls": loader_calls_of(metadata),
        "trials": trials_of(metadata),
        "_device_signs": device_signs(metadata, readings),
        "_ranks": ranks_of_run(traces, metadata, unreadable),
        "_group_roles": _group_roles(metadata),
        "inputs": facts,
        "_issues": issues,
        **reading_tables(readings),
    }
    return {name: [tuple(map(_as_text, row)) for row in rows] for name, rows in tables.items()}


def _as_text(value: Any) -> Any:
    """Escape characters that UTF-8 cannot encode, such as those that stand for undecodable bytes in file names. Tables
    can only contain valid text."""
    if not isinstance(value, str) or value.isascii():
        return value
    text = valid_text(value)
    # Return the same object, because thousands of rows may share one text, and copies would need gigabytes.
    return value if text == value else text


def _group_roles(metadata: Mapping[int, Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """The role of each process group, as stated by the lowest rank that lists the group."""
    found: dict[str, str] = {}
    for _, stated in sorted(metadata.items()):
        info = stated.get("distributedInfo")
        roles = info.get("pg_roles") if isinstance(info, dict) else None
        for name, role in (roles if isinstance(roles, dict) else {}).items():
            # Only this program writes these roles, but a trace may have such a key, with any value.
            if isinstance(role, str):
                found.setdefault(name, role)
    return sorted(found.items())


def _vocabulary() -> list[tuple[Any, ...]]:
    """All names to which the vendor files assign roles."""
    known = vendors.vendors(vendors.FOLDER)
    return [(vendor.type, name.subject, name.role, name.pattern) for vendor in known for name in vendor.names]


def _lane_patterns() -> list[tuple[Any, ...]]:
    known = vendors.vendors(vendors.FOLDER)
    lanes = [(vendor.type, lane) for vendor in known for lane in vendor.lanes]
    return [(number, kind, lane.field, lane.pattern, lane.engine) for number, (kind, lane) in enumerate(lanes)]
