"""Definitions of the metrics of the summary, from ``metrics.toml``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import tomli

_FILE = Path(__file__).parent.parent / "metrics.toml"

Unit = Literal["ratio", "ms", "count", "bytes", "per_s"]


@dataclass(frozen=True)
class MetricKind:
    """A metric of the summary.

    ``label``: its name in tables. A metric without a label is not shown in tables.
    ``on_cpu``: the label for runs on the CPU, if it differs; empty if the metric is meaningless there.
    ``device``: the only device type that has the metric; None if all have it.
    ``serving``: true if only a language-model server has the metric, so that other runs do not show it.
    ``better``: the desired direction; None if there is none.
    """

    name: str
    unit: Unit
    meaning: str
    label: str | None = None
    on_cpu: str | None = None
    device: str | None = None
    serving: bool = False
    better: Literal["lower", "higher"] | None = None

    def label_for(self, device: str | None) -> str | None:
        """Return the label in tables for this type of ``device``, or None if the metric is not shown."""
        if self.device not in (None, device):
            return None
        return self.label if device != "cpu" or self.on_cpu is None else self.on_cpu or None


@cache
def metric_kinds() -> tuple[MetricKind, ...]:
    """Return all metrics of the summary, in report order."""
    return tuple(MetricKind(**entry) for entry in tomli.loads(_FILE.read_text(encoding="utf-8"))["metric"])


def metric_names() -> tuple[str, ...]:
    """Return the names of all metrics, in report order."""
    return tuple(kind.name for kind in metric_kinds())
