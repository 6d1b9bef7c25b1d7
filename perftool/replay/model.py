"""A replay model of one rank's steps. It is validated on the unchanged steps before it predicts changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from perftool.replay.changes import Altered, Change, altered
from perftool.replay.cores import Cores, cores_of
from perftool.replay.graph import Graph, build_graph
from perftool.replay.limits import LAUNCH_NS
from perftool.replay.recording import NONE, Recording, Steps, choose_steps, read_recording
from perftool.replay.run import Replay, replay_once, replay_steady
from perftool.store.trace_store import TraceStore
from perftool.units import format_ns, format_ratio

MOST_ERROR = 0.02
# Limits memory and time: every replay takes about a microsecond per task.
_MOST_TASKS = 400_000
# Limits two products, tasks times streams and launches times threads, because the replay compares all pairs.
_MOST_CROSSINGS = 64 * _MOST_TASKS
# At least this share of the device time must have a known launch, or must have been queued before the window.
_LEAST_LINKED = 0.8
# At most this share of the tasks with a known launch may start clearly before that launch.
_MOST_BEFORE_LAUNCH = 0.05


@dataclass(frozen=True)
class Prediction:
    """The mean length of a step (``step_ns``) in the ``replay`` of the ``altered`` graph. If the machine
    lacks resources, ``lacks`` is a clause about them, and ``step_ns`` is only a lower bound.
    """

    step_ns: int
    replay: Replay
    altered: Altered
    lacks: str | None = None


@dataclass(frozen=True)
class Model:
    """The replayed steps of ``rank``. If predictions cannot be trusted, ``why_not`` is the reason.

    ``measured_ns`` and ``replayed_ns`` are the mean step times in the recording and in the unchanged replay.
    """

    rank: int
    graph: Graph
    repeats: bool
    measured_ns: int
    unchanged: Replay
    why_not: str | None
    cores: Cores

    @property
    def replayed_ns(self) -> int:
        """The mean length of a step in the unchanged replay."""
        return self.unchanged.step_ns

    @property
    def steps(self) -> int:
        """The number of replayed steps."""
        return len(self.graph.step_begin)

    @property
    def window(self) -> tuple[int, int]:
        """When the replayed steps start and end in the recording, in ns. The end is that of the host or of the device,
        whichever is later."""
        steps = self.graph.recording.steps
        return self.graph.recording.begin, int(max(steps.end.max(), steps.host_end.max()))

    @property
    def error_ratio(self) -> float:
        """The error of the unchanged replay, as a share of the measured step; negative values mean a short replay."""
        return (self.replayed_ns - self.measured_ns) / max(1, self.measured_ns)

    @cached_property
    def predicts(self) -> bool:
        """Whether predictions can be trusted."""
        return self.why_not is None

    def predict(self, changes: Sequence[Change]) -> Prediction:
        """Predict the steps with ``changes``. A step takes at least the time of its concurrent work."""
        result = altered(self.graph, changes)
        replayed = _replay(self.graph, self.repeats, result.lag, result.dur)
        step_ns = max(replayed.step_ns, result.concurrent_ns)
        if not result.by_workers:
            return Prediction(step_ns, replayed, result)
        least_ns, lacks = self.cores.least_step(self.measured_ns, step_ns, len(self.graph.recording.tasks) > 0)
        return Prediction(max(step_ns, least_ns), replayed, result, lacks)


_MADE: WeakKeyDictionary[TraceStore, dict[int, Model | str]] = WeakKeyDictionary()


def models_of(store: TraceStore) -> Mapping[int, Model | str]:
    """Return the result of ``model_of`` for every rank of ``store``."""
    return {rank: model_of(store, rank) for rank in sorted(store.metadata)}


def model_of(store: TraceStore, rank: int) -> Model | str:
    """Return the model of ``rank``, or a clause that says why there is none. It is built once per store."""
    made = _MADE.setdefault(store, {})
    if rank not in made:
        made[rank] = _make(store, rank)
    return made[rank]


def _make(store: TraceStore, rank: int) -> Model | str:
    chosen = choose_steps(store, rank)
    if chosen is None:
        return "the recording has no complete step"
    recording = read_recording(store, rank, chosen)
    if len(recording.tasks) > _MOST_TASKS and len(chosen) > 1:
        recording = read_recording(store, rank, _first(chosen))
    if len(recording.tasks) > _MOST_TASKS:
        return (
            f"a step has {len(recording.tasks)} kernels, copies and fills, more than the {_MOST_TASKS} that a replay "
            "allows"
        )
    if crowded := _crowded(recording):
        return crowded
    graph = build_graph(recording)
    unchanged = _replay(graph, chosen.repeat)
    measured = recording.steps.measured_ns
    why_not = _why_not(recording, measured, unchanged.step_ns)
    return Model(rank, graph, chosen.repeat, measured, unchanged, why_not, cores_of(store, rank))


def _crowded(recording: Recording) -> str | None:
    """Return a clause that says that there are too many streams or threads to replay, or None if there are not."""
    lanes = len(np.unique(recording.tasks.lane))
    if lanes * len(recording.tasks) > _MOST_CROSSINGS:
        return f"the work of a step is spread over {lanes:,} streams, too many to replay"
    if recording.threads * len(recording.launches) > _MOST_CROSSINGS:
        return f"the calls of a step come from {recording.threads:,} threads, too many to replay"
    return None


def _first(steps: Steps) -> Steps:
    return Steps(steps.ts[:1], steps.end[:1], steps.host_ts[:1], steps.host_end[:1], steps.repeat)


def _replay(graph: Graph, repeats: bool, *arrays: np.ndarray) -> Replay:
    """Replay the steps in several passes, or once if the recording is not divided into steps."""
    return replay_steady(graph, *arrays) if repeats else replay_once(graph, *arrays)


def _why_not(recording: Recording, measured: int, replayed: int) -> str | None:
    """Explain why the unchanged replay cannot be trusted. Return None if it can."""
    tasks = recording.tasks
    linked = tasks.queued | (tasks.launch != NONE)
    length = tasks.end - tasks.ts
    if length[linked].sum() < _LEAST_LINKED * length.sum():
        share = format_ratio(float(1 - length[linked].sum() / length.sum()))
        return f"the trace does not show what launched {share} of the device work"
    known = tasks.launch != NONE
    early = recording.launches.ts[tasks.launch[known]] - tasks.ts[known] > LAUNCH_NS if known.any() else np.zeros(1)
    if early.mean() > _MOST_BEFORE_LAUNCH:
        return "work seems to start before its launch, so the clocks of host and device differ"
    if measured <= 0:
        return "the steps take no time"
    error = (replayed - measured) / measured
    if abs(error) > MOST_ERROR:
        text = f"the unchanged replay takes {format_ns(replayed)} for a step that took {format_ns(measured)}"
        return f"{text}: {_unexplained(recording, len(recording.steps) * (measured - replayed))}" if error < 0 else text
    return None


def _unexplained(recording: Recording, missing_ns: int) -> str:
    """Describe the time that the replay does not explain, such as submitted work that does not start on an idle
    device."""
    tasks, calls = recording.tasks, recording.launches
    known = np.flatnonzero(tasks.launch != NONE)
    if len(known):
        done_before = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(tasks.end)[:-1])[known]
        still = tasks.ts[known] - np.maximum(calls.end[tasks.launch[known]], done_before)
        if still[still > LAUNCH_NS].sum() >= missing_ns / 2:
            if known[0] == 0 and still[0] >= missing_ns / 2:
                late = format_ns(int(still[0]))
                before = "the recording does not show what the device did until then"
                return f"its first work starts {late} after it was submitted; {before}"
            stands = f"submitted work does not start for up to {format_ns(int(still.max()))}"
            return f"{stands}, and the trace does not show what it waits for"
    return "the trace does not show what the rest was spent on"
