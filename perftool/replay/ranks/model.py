"""A replay model of all ranks of a run. It is validated on the unchanged steps before it predicts changes."""

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
    """The steps of all ranks, connected by their collectives. If predictions cannot be trusted, ``why_not`` is the
    reason. ``measured_ns`` is the mean step time in the recording.
    """

    meetings: Meetings
    measured_ns: int
    why_not: str | None

    @property
    def replayed_ns(self) -> int:
        """The mean length of a step in the unchanged replay, in ns."""
        return self.meetings.unchanged_ns

    @property
    def error_ratio(self) -> float:
        """The error of the unchanged replay, as a share of the measured step."""
        return (self.replayed_ns - self.measured_ns) / max(1, self.measured_ns)

    def predict(self, changes: Sequence[Less]) -> int:
        """Return the predicted length of a step with ``changes``, in ns."""
        return self.meetings.predict(changes)


_MADE: WeakKeyDictionary[TraceStore, RunModel | str] = WeakKeyDictionary()


def run_model_of(store: TraceStore) -> RunModel | str:
    """Return the model of the ranks of ``store``, or a clause that says why there is none. It is built once per
    store.
    """
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
