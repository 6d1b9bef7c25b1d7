"""What the numbers of the summary are, from ``metrics.toml``: the one list of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import tomli

_FILE = Path(__file__).parent.parent / "metrics.toml"

Unit = Literal["ratio", "ms", "count", "bytes"]


@dataclass(frozen=True)
class MetricKind:
    """A number of the summary. Those with a ``label`` stand in the tables of reports; ``gaudi`` ones only where a Gaudi
    ran. ``better`` says which way the number should go, None where neither is better by itself."""

    name: str
    unit: Unit
    meaning: str
    label: str | None = None
    gaudi: bool = False
    better: Literal["lower", "higher"] | None = None

    def shown_for(self, device: str | None) -> bool:
        """Whether a device of this type can have it."""
        return device == "hpu" or not self.gaudi


@cache
def metric_kinds() -> tuple[MetricKind, ...]:
    """Every number of the summary, in the order of reports."""
    return tuple(MetricKind(**entry) for entry in tomli.loads(_FILE.read_text(encoding="utf-8"))["metric"])


def metric_names() -> tuple[str, ...]:
    """The names of all numbers, in the order of reports."""
    return tuple(kind.name for kind in metric_kinds())
