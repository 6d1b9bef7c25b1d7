"""The small tables that no query derives: what was read, what it says of the run, and what is known beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perftool.model import vendors
from perftool.model.inputs import InputFile
from perftool.model.metrics import metric_kinds
from perftool.op_costs.model import KINDS
from perftool.store.facts import device_facts, named_devices
from perftool.store.ranks import ranks_of_run
from perftool.store.readings import Reading, reading_tables


def given_tables(
    traces: Sequence[InputFile],
    readings: Sequence[Reading],
    metadata: Mapping[int, Mapping[str, Any]],
    unreadable: Sequence[InputFile],
) -> dict[str, Sequence[tuple[Any, ...]]]:
    """The rows of each table; ``metadata`` is that of the ``traces``, by rank."""
    inputs = [*traces, *(part.as_input() for part in readings)]
    facts = [(read.path, read.kind, read.rank, read.bytes, read.events, read.status) for read in inputs]
    issues = [(read.path, i.kind, i.count, i.bytes, i.offset, i.message) for read in inputs for i in read.issues]
    return {
        "_vocabulary": _vocabulary(),
        "_lanes": _lane_patterns(),
        "_metric_units": [(kind.name, kind.unit) for kind in metric_kinds()],
        "device_facts": device_facts(),
        "op_kinds": [(name, kind) for kind, models in KINDS.items() for name in models],
        "devices": named_devices(metadata),
        "_ranks": ranks_of_run(traces, metadata, unreadable),
        "inputs": facts,
        "_issues": issues,
        **reading_tables(readings),
    }


def _vocabulary() -> list[tuple[Any, ...]]:
    """Every name that some vendor's file gives a role."""
    known = vendors.vendors(vendors.FOLDER)
    return [(vendor.type, name.subject, name.role, name.pattern) for vendor in known for name in vendor.names]


def _lane_patterns() -> list[tuple[Any, ...]]:
    known = vendors.vendors(vendors.FOLDER)
    lanes = [lane for vendor in known for lane in vendor.lanes]
    return [(number, lane.field, lane.pattern, lane.engine) for number, lane in enumerate(lanes)]
