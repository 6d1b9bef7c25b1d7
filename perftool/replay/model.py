"""The steps of one rank as a model: proved on the unchanged steps, then asked what a change would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from perftool.replay.changes import Altered, Change, altered
from perftool.replay.graph import Graph, build_graph
from perftool.replay.limits import LAUNCH_NS
from perftool.replay.recording import NONE, Recording, Steps, choose_steps, read_recording
from perftool.replay.run import Replay, replay_once, replay_steady
from perftool.store.trace_store import TraceStore
from perftool.units import format_ns, format_ratio

MOST_ERROR = 0.02
# Each costs some bytes and a microsecond for every replay.
_MOST_TASKS = 400_000
# Of the device time, and of the tasks, in which clocks and links must agree.
_LEAST_LINKED = 0.8
_MOST_BEFORE_LAUNCH = 0.05


@dataclass(frozen=True)
class Prediction:
    """A replay with changes, ``altered`` by them; ``step_ns`` is the mean length of a step."""

    step_ns: int
    replay: Replay
    altered: Altered


@dataclass(frozen=True)
class Model:
    """The replayed steps of ``rank``. ``why_not`` is one sentence when nothing may be predicted from it.

    ``measured_ns`` and ``replayed_ns`` are mean lengths of a step, as recorded and as the unchanged replay gives them.
    """

    rank: int
    graph: Graph
    repeats: bool
    measured_ns: int
    unchanged: Replay
    why_not: str | None

    @property
    def replayed_ns(self) -> int:
        """What the unchanged replay takes for a step."""
        return self.unchanged.step_ns

    @property
    def steps(self) -> int:
        """How many steps are replayed."""
        return len(self.graph.step_begin)

    @property
    def window(self) -> tuple[int, int]:
        """Where the replayed steps lie in the recording, on host and device, in ns."""
        steps = self.graph.recording.steps
        return self.graph.recording.begin, int(max(steps.end.max(), steps.host_end.max()))

    @property
    def error_ratio(self) -> float:
        """How far the unchanged replay is off, as a share of the measured step; negative when it is too short."""
        return (self.replayed_ns - self.measured_ns) / max(1, self.measured_ns)

    @cached_property
    def predicts(self) -> bool:
        """Whether it may be asked."""
        return self.why_not is None

    def predict(self, changes: Sequence[Change]) -> Prediction:
        """The steps with ``changes``; what runs beside them bounds them from below."""
        result = altered(self.graph, changes)
        replayed = _replay(self.graph, self.repeats, result.lag, result.dur)
        return Prediction(max(replayed.step_ns, result.beside_ns), replayed, result)


_MADE: WeakKeyDictionary[TraceStore, dict[int, Model | str]] = WeakKeyDictionary()


def models_of(store: TraceStore) -> Mapping[int, Model | str]:
    """What ``model_of`` says of every rank of ``store``."""
    return {rank: model_of(store, rank) for rank in sorted(store.metadata)}


def model_of(store: TraceStore, rank: int) -> Model | str:
    """The model of ``rank``, or one sentence why there is none; made once for each store."""
    made = _MADE.setdefault(store, {})
    if rank not in made:
        made[rank] = _make(store, rank)
    return made[rank]


def _make(store: TraceStore, rank: int) -> Model | str:
    chosen = choose_steps(store, rank)
    if chosen is None:
        return "the recording holds no complete step"
    recording = read_recording(store, rank, chosen)
    if len(recording.tasks) > _MOST_TASKS and len(chosen) > 1:
        recording = read_recording(store, rank, _first(chosen))
    if len(recording.tasks) > _MOST_TASKS:
        return f"a step has {len(recording.tasks)} units of device work, more than the {_MOST_TASKS} that are replayed"
    graph = build_graph(recording)
    unchanged = _replay(graph, chosen.repeat)
    measured = recording.steps.measured_ns
    return Model(rank, graph, chosen.repeat, measured, unchanged, _why_not(recording, measured, unchanged.step_ns))


def _first(steps: Steps) -> Steps:
    return Steps(steps.ts[:1], steps.end[:1], steps.host_ts[:1], steps.host_end[:1], steps.repeat)


def _replay(graph: Graph, repeats: bool, *arrays: np.ndarray) -> Replay:
    """Steps are a cycle, and are judged in the long run; a recording without steps happens once."""
    return replay_steady(graph, *arrays) if repeats else replay_once(graph, *arrays)


def _why_not(recording: Recording, measured: int, replayed: int) -> str | None:
    """One sentence when the unchanged replay is not to be trusted."""
    tasks = recording.tasks
    linked = tasks.queued | (tasks.launch != NONE)
    length = tasks.end - tasks.ts
    if length[linked].sum() < _LEAST_LINKED * length.sum():
        share = format_ratio(float(1 - length[linked].sum() / length.sum()))
        return f"the trace does not show what launched {share} of the device work"
    known = tasks.launch != NONE
    early = recording.launches.ts[tasks.launch[known]] - tasks.ts[known] > LAUNCH_NS if known.any() else np.zeros(1)
    if early.mean() > _MOST_BEFORE_LAUNCH:
        return "the clocks of host and device differ: work starts before it is launched"
    if measured <= 0:
        return "the steps have no length"
    error = (replayed - measured) / measured
    if abs(error) > MOST_ERROR:
        text = f"the unchanged replay takes {format_ns(replayed)} for a step that took {format_ns(measured)}"
        return f"{text}: {_unexplained(recording, len(recording.steps) * (measured - replayed))}" if error < 0 else text
    return None


def _unexplained(recording: Recording, missing_ns: int) -> str:
    """What the replay lacks: time in which submitted work does not begin though the device does nothing, or other."""
    tasks, calls = recording.tasks, recording.launches
    known = np.flatnonzero(tasks.launch != NONE)
    if len(known):
        done_before = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(tasks.end)[:-1])[known]
        still = tasks.ts[known] - np.maximum(calls.end[tasks.launch[known]], done_before)
        if still[still > LAUNCH_NS].sum() >= missing_ns / 2:
            if known[0] == 0 and still[0] >= missing_ns / 2:
                late = format_ns(int(still[0]))
                return (
                    f"its first work starts {late} after it was submitted; what the device did before is not recorded"
                )
            stands = f"submitted work stands still, for {format_ns(int(still.max()))} at the longest"
            return f"{stands}, and the trace does not show what it waits for"
    return "the trace does not show what the rest was spent on"
