"""The ranks of a run as one model: validated on their unchanged steps, then used to predict changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from perftool.replay.model import MOST_ERROR
from perftool.replay.ranks.meetings import Less, Meetings
from perftool.replay.ranks.reading import read_meetings
from perftool.store.trace_store import TraceStore
from perftool.units import format_ns


@dataclass(frozen=True)
class RunModel:
    """The steps of all ranks, joined by their collectives. ``why_not`` gives the reason if nothing may be predicted.

    ``measured_ns`` is the mean step, as recorded.
    """

    meetings: Meetings
    measured_ns: int
    why_not: str | None

    @property
    def replayed_ns(self) -> int:
        """The length of a step in the unchanged replay."""
        return self.meetings.unchanged_ns

    @property
    def error_ratio(self) -> float:
        """The error of the unchanged replay, as a share of the measured step."""
        return (self.replayed_ns - self.measured_ns) / max(1, self.measured_ns)

    def predict(self, changes: Sequence[Less]) -> int:
        """The length of a step with ``changes``, in ns."""
        return self.meetings.predict(changes)


_MADE: WeakKeyDictionary[TraceStore, RunModel | str] = WeakKeyDictionary()


def run_model_of(store: TraceStore) -> RunModel | str:
    """The model of the ranks of ``store``, or a sentence on why there is none; made once for each store."""
    if store not in _MADE:
        meetings = read_meetings(store)
        _MADE[store] = meetings if isinstance(meetings, str) else _judged(meetings)
    return _MADE[store]


def _judged(meetings: Meetings) -> RunModel:
    measured, replayed = meetings.measured_ns, meetings.unchanged_ns
    if abs(replayed - measured) <= MOST_ERROR * measured:
        return RunModel(meetings, measured, None)
    took = f"takes {format_ns(replayed)} for a step that took {format_ns(measured)}"
    return RunModel(meetings, measured, f"the unchanged replay of the ranks together {took}")
