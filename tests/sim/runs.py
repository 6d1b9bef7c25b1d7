"""Runs small scripts on the simulated device."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import dedent
from typing import Any

from perftool.sim import Simulated, simulate


@dataclass(frozen=True)
class Run:
    """A simulated run and its trace."""

    done: Simulated

    @cached_property
    def top(self) -> dict[str, Any]:
        """The content of the trace file."""
        return json.loads(self.done.trace.read_text())

    @property
    def events(self) -> list[dict[str, Any]]:
        return self.top["traceEvents"]

    def named(self, name: str) -> list[dict[str, Any]]:
        """Return the complete events and begin events called ``name``."""
        return [event for event in self.events if event["name"] == name and event["ph"] in "XB"]

    def kernels(self, engine: str = "") -> list[dict[str, Any]]:
        """Return the device work, on all engines or on one of them, without Synapse's command downloads."""
        base = {"MME": 6, "TPC": 7, "PDMA": 3, "": None}[engine]
        work = [event for event in self.events if event["pid"] == 0 and event["ph"] == "X"]
        work = [event for event in work if not event["name"].startswith("pdma_tx_commands")]
        return [event for event in work if base is None or event["tid"] // 1000 == base]

    def busy(self, engine: str = "") -> float:
        """Return the microseconds of device work."""
        return sum(event["dur"] for event in self.kernels(engine))

    @property
    def log(self) -> str:
        return self.done.log.read_text()

    @property
    def metrics(self) -> dict[str, Any]:
        """The statistics of each metric."""
        return {record["metric_name"]: record["statistics"] for record in json.loads(self.done.metrics.read_text())}


def run(folder: Path, source: str, *args: str, **options: Any) -> Run:
    """Run the text of a script. ``options`` are those of :func:`perftool.sim.simulate`, but all steps are kept by
    default.
    """
    script = folder / "script.py"
    script.write_text("import torch\nimport habana_frameworks.torch.core as htcore\n" + dedent(source))
    number = len(list(folder.glob("*.json")))
    return Run(simulate(script, args, output=folder / f"run{number}.json", **{"skip_steps": 0, **options}))
