"""The simulated run's console log and metrics file, in the formats of Gaudi software release 1.19."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone

from perftool.sim.machine.causes import Cause
from perftool.sim.machine.write import BASE_NS, NOTE
from perftool.units import quantity

_RULE = "------------------------------------------------------------------------------"
_LAZY_MODE = {"lazy": "1", "eager": "0", "compile": "0"}


class RunLog:
    """Collects log lines and counters. Times are nanoseconds after the base of the trace; the log shows them in UTC."""

    def __init__(self, device: str, mode: str) -> None:
        self._lines = [f"{NOTE}; device {device}, mode {mode}", *_banner(mode)]
        self._mode = mode
        self.fallbacks: Counter[str] = Counter()
        self.computed_in_fp32 = 0
        self.remarks: list[str] = []
        self.compiled: list[tuple[str, int]] = []
        self.hits: Counter[int] = Counter()
        self.misses: Counter[int] = Counter()

    def cut(self, reason: str, now: int) -> None:
        """Log why the lazy graph was cut (``LOG_LEVEL_PT_IRGRAPH=1``)."""
        if self._mode == "lazy":
            self._record("PT_IRGRAPH", "debug", f"step marker due to {reason}", now)

    def fallback(self, op: str, types: Mapping[str, str], now: int) -> None:
        """Log an op that runs on the CPU, with the types of its arguments (``LOG_LEVEL_PT_FALLBACK=1``)."""
        self.fallbacks[op] += 1
        shown = " ".join(f"{name}={kind}" for name, kind in types.items())
        short = op.removeprefix("aten::").split(".")[0]
        self._record("PT_FALLBACK", "debug", f"CPU fallback {short} : {shown}", now)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on how this simulated run differs from a Gaudi, and on its settings."""
        wide = quantity(self.computed_in_fp32, "op", "ops")
        wide += " on float64 tensors: a Gaudi silently computes them in fp32"
        return (*([wide] if self.computed_in_fp32 else []), *self.remarks)

    def text(self, now: int, causes: Sequence[Cause]) -> str:
        """Return the whole log of a run that ends at ``now``, with an additional line for each of its ``causes``."""
        lines = [*self._lines, *(f"note: {note}" for note in self.notes), *(f"cause: {each.text}" for each in causes)]
        if self.fallbacks:
            ordered = sorted(self.fallbacks.items(), key=lambda item: (-item[1], item[0]))
            table = "\n".join(["CPU Fallback stats:", *(f"{count}\t{op}" for op, count in ordered)])
            lines.append(_line("PT_FALLBACK", "critical", table, now))
        return "\n".join([*lines, "Closing PyTorch logger. No more log messages will be logged.", ""])

    def metrics(self, now: int) -> str:
        """Return the metrics file of a run that ends at ``now``, dumped at process exit."""
        stamp = _clock(now).replace(tzinfo=None).isoformat(timespec="microseconds")
        head = {"triggered_by": "process_exit", "generated_on": stamp}
        records = [{"metric_name": name, **head, "statistics": values} for name, values in self.statistics().items()]
        return "[" + ",\n".join(json.dumps(record) for record in records) + "]\n"

    def statistics(self) -> dict[str, dict[str, object]]:
        """Return the values of every metric, by metric name."""
        # The bridge does not count compilations in eager mode.
        compiled = [] if self._mode == "eager" else self.compiled
        total = sum(time for _, time in compiled)
        return {
            "graph_compilation": {
                "TotalNumber": len(compiled),
                "TotalTime": total,
                "AvgTime": total / len(compiled) if compiled else 0,
                "recipe": [list(recipe) for recipe in compiled],
            },
            "cpu_fallback": {"TotalNumber": self.fallbacks.total(), "FallbackOps": dict(self.fallbacks)},
            "memory_defragmentation": {"TotalNumber": 0, "TotalSuccessful": 0, "AvgTime": 0, "MaxTime": 0},
            "recipe_cache": {
                "TotalHit": self.hits.total(),
                "RecipeHit": {str(recipe): count for recipe, count in self.hits.items()},
                "TotalMiss": self.misses.total(),
                "RecipeMiss": {str(recipe): count for recipe, count in self.misses.items()},
            },
        }

    def _record(self, logger: str, level: str, text: str, now: int) -> None:
        self._lines.append(_line(logger, level, text, now))


def _line(logger: str, level: str, text: str, now: int) -> str:
    return f"[{_clock(now):%H:%M:%S.%f}][{logger:<19}][{level:<5}][tid:398E] {text}"


def _clock(now: int) -> datetime:
    base = datetime.fromtimestamp(BASE_NS // 10**9, tz=timezone.utc)
    return base + timedelta(microseconds=now // 1000)


def _banner(mode: str) -> list[str]:
    settings = {
        "PT_HPU_LAZY_MODE": _LAZY_MODE[mode],
        "PT_RECIPE_CACHE_PATH": "",
        "PT_CACHE_FOLDER_DELETE": "0",
        "PT_HPU_RECIPE_CACHE_CONFIG": "",
        "PT_HPU_MAX_COMPOUND_OP_SIZE": "9223372036854775807",
        "PT_HPU_LAZY_ACC_PAR_MODE": "1",
        "PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES": "0",
        "PT_HPU_EAGER_PIPELINE_ENABLE": "1",
        "PT_HPU_EAGER_COLLECTIVE_PIPELINE_ENABLE": "1",
    }
    return [
        "============================= HABANA PT BRIDGE CONFIGURATION =========================== ",
        *(f" {name} = {value}" for name, value in settings.items()),
        "---------------------------: System Configuration :---------------------------",
        "Num CPU Cores : 160",
        "CPU RAM       : 1056412772 KB",
        _RULE,
    ]
