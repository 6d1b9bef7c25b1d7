"""Facts about Gaudi's PyTorch bridge, from ``perftool/hpu_bridge.json``. Its ops are in ``perftool.model.hpu_ops``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import orjson

_FILE = Path(__file__).parent.parent / "hpu_bridge.json"


@dataclass(frozen=True)
class HpuBridge:
    """The contents of the file.

    ``cuts`` lists the reasons for graph cuts that the simulator models. ``other_cuts`` maps every other reason to an
    explanation of why it is not modelled. The autocast lists contain op names without a namespace, and
    ``numbers_as_tensors`` contains full op names. ``computed_as`` and ``stored_as`` map a data type to the type that
    the bridge uses instead.
    """

    cuts: frozenset[str]
    other_cuts: Mapping[str, str]
    autocast_lower: frozenset[str]
    autocast_fp32: frozenset[str]
    autocast_lower_first: frozenset[str]
    autocast_promote: frozenset[str]
    numbers_as_tensors: frozenset[str]
    computed_as: Mapping[str, str]
    stored_as: Mapping[str, str]


@cache
def hpu_bridge() -> HpuBridge:
    """Load the shipped file."""
    data = orjson.loads(_FILE.read_bytes())
    cuts, autocast, dtypes = data["graph_cuts"], data["autocast"], data["dtypes"]
    return HpuBridge(
        cuts=frozenset(cuts["modelled"]),
        other_cuts={reason: why for why, reasons in cuts["others"].items() for reason in reasons},
        autocast_lower=frozenset(autocast["lower"]),
        autocast_fp32=frozenset(autocast["fp32"]),
        autocast_lower_first=frozenset(autocast["lower_first"]),
        autocast_promote=frozenset(autocast["promote"]),
        numbers_as_tensors=frozenset(data["numbers_as_tensors"]["ops"]),
        computed_as=dtypes["computed_as"],
        stored_as=dtypes["stored_as"],
    )
