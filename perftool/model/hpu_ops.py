"""The ops that Gaudi's bridge registers, and their data types, from ``perftool/hpu_ops.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import orjson

from perftool.model.hpu_bridge import hpu_bridge

_FILE = Path(__file__).parent.parent / "hpu_ops.json"
# No Gaudi can compute with these types, and the bridge does not convert them to other types.
MISSING_EVERYWHERE = frozenset({"complex64", "complex128"})
ANY_ARGUMENT = "*"


@dataclass(frozen=True)
class HpuOps:
    """The registered ops. ``names`` contains full names (``aten::mm.out``), and ``bases`` contains names as
    ``base_name`` returns them. ``dtypes`` contains the supported data types by op, device and argument, as far as they
    are listed."""

    names: frozenset[str]
    bases: frozenset[str]
    dtypes: Mapping[str, Mapping[str, Mapping[str, frozenset[str]]]]


@cache
def hpu_ops() -> HpuOps:
    """Load the shipped file."""
    data = orjson.loads(_FILE.read_bytes())
    listed = {
        op: {
            device: {argument: frozenset(types) for argument, types in arguments.items()}
            for device, arguments in group["dtypes"].items()
        }
        for group in data["listed"]
        for op in group["ops"]
    }
    names = frozenset((*listed, *data["unlisted"]))
    return HpuOps(names, frozenset(map(base_name, names)), listed)


def base_name(op: str) -> str:
    """Return ``op`` without its overload and the underscore of an in-place form: ``aten::add`` for
    ``aten::add_.out``.
    """
    namespace, _, rest = op.rpartition("::")
    name = rest.split(".")[0]
    return f"{namespace}::{name.rstrip('_') or name}"


def is_registered(op: str) -> bool:
    """Whether any form of ``op`` (overloads, in-place, out) has a kernel for HPU."""
    return base_name(op) in hpu_ops().bases


def unsupported(op: str, base: str, dtypes: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the ``dtypes`` that no Gaudi supports for ``op``, and all supported types (empty if they are not
    listed).
    """
    listed = hpu_ops().dtypes.get(op) or hpu_ops().dtypes.get(base) or {}
    known = frozenset(dtype for arguments in listed.values() for types in arguments.values() for dtype in types)
    if not known:
        return dtypes & MISSING_EVERYWHERE, known
    computed_as = hpu_bridge().computed_as
    return frozenset(dtype for dtype in dtypes - known if computed_as.get(dtype) not in known), known


def accepts(op: str, device: str, argument: str, dtype: str) -> bool:
    """Whether ``device`` (``GAUDI2``) accepts ``dtype`` for an argument of ``op``; True unless a list excludes it."""
    if dtype in MISSING_EVERYWHERE:
        return False
    arguments = hpu_ops().dtypes.get(op, {}).get(device, {})
    types = arguments.get(argument) or arguments.get(ANY_ARGUMENT)
    bridge = hpu_bridge()
    names = (dtype, bridge.stored_as.get(dtype), bridge.computed_as.get(dtype))
    return types is None or any(name in types for name in names)
