"""Data types that HPU ops take, as far as their registrations list them (``perftool/hpu_dtypes.toml``)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import tomli

_FILE = Path(__file__).parent.parent / "hpu_dtypes.toml"
# No arithmetic unit of any Gaudi works on these.
MISSING_EVERYWHERE = frozenset({"float64", "complex64", "complex128"})


@cache
def listed_dtypes() -> Mapping[str, frozenset[str]]:
    """The types of each op (``aten::mm``, overloads as ``aten::mm.out``), over all its arguments."""
    data = tomli.loads(_FILE.read_text(encoding="utf-8"))
    return {op: frozenset(group["dtypes"]) for group in data["kernels"] for op in group["ops"]}


def unsupported(op: str, base: str, dtypes: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Which of ``dtypes`` the device lacks for ``op``, and which it has (empty when no list is known)."""
    known = listed_dtypes().get(op) or listed_dtypes().get(base) or frozenset()
    missing = dtypes - known if known else dtypes & MISSING_EVERYWHERE
    return missing, known
