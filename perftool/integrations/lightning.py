"""``HPUProfiler`` for the Lightning package that the script uses: ``lightning`` or ``pytorch_lightning``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perftool.errors import MissingExtraError, PerfToolError
from perftool.integrations.activities import ProfilerActivity, activities_here, torch_profiler
from perftool.integrations.endings import Endings
from perftool.integrations.home_thread import HomeThread
from perftool.integrations.machine import Schedule, Watch
from perftool.integrations.own_warnings import warn
from perftool.integrations.process import new_trace, rank_here
from perftool.integrations.record.plan import ACTIVE, WAIT, WARMUP
from perftool.integrations.recording import analyze_trace, errors_become_warnings, show
from perftool.integrations.saving import save_trace

if TYPE_CHECKING:
    from pytorch_lightning.profilers import PyTorchProfiler as _PyTorchProfiler

    from perftool.model.report import Report
else:
    # The base class depends on the package that the script uses.
    _PyTorchProfiler = object

_HOMES = ("lightning.pytorch.profilers", "pytorch_lightning.profilers")
_STEP_FUNCTIONS = ("training_step", "validation_step", "test_step", "predict_step")


class HPUProfiler(_PyTorchProfiler):
    """Records a few steps of a Trainer on host and device, and reports at the end what slows them down.

    Use it as ``Trainer(profiler=HPUProfiler())``. It is Lightning's PyTorchProfiler; by default it records the host and
    every device of this machine. Every rank saves its trace in ``dirpath``, by default in the Trainer's log directory
    or, if it has none, in ``hpu_profile``. The trace's name contains ``filename``. Record your own actions with ``with
    profiler.profile("name"):``, or ``start`` and ``stop``. ``report=False`` prints no report at the end. Other
    arguments are as for PyTorchProfiler and torch.profiler.profile.

    Limits: recording slows the run down (use SimpleProfiler to time it); ``summary()`` is not supported; the Trainer
    does not accept the name "hpu", so pass the object.
    """

    def __new__(cls, *arguments: Any, **named: Any) -> HPUProfiler:
        """Create a profiler for the Lightning package in use. Raise MissingExtraError if none is installed."""
        base = _pytorch_profiler()
        made: HPUProfiler = super().__new__(cls if issubclass(cls, base) else _joined(cls, base))
        return made

    def __init__(
        self,
        dirpath: str | Path | None = None,
        filename: str | None = None,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        record_shapes: bool = True,
        report: bool = True,
        **others: Any,
    ) -> None:
        self.traces: list[Path] = []
        # The program may change its working directory.
        self._base = Path.cwd()
        self._shows_report = report
        self._last_action = ""
        others.setdefault("on_trace_ready", self._save)
        self._endings = Endings(self._save_the_rest)
        self._home = HomeThread(self._save_the_rest)
        self._owner = os.getpid()
        super().__init__(
            dirpath=dirpath,
            filename=filename,
            activities=list(activities_here() if activities is None else activities),
            record_shapes=record_shapes,
            **others,
        )
        self._watch = Watch(self._schedule)
        self._watch.is_urgent = lambda: self._endings.is_urgent
        if self._schedule is not None:
            self._profiler_kwargs["schedule"] = self._watch.schedule

    @property
    def report(self) -> Report:
        """The report on the newest trace of this rank. Raises PerfToolError if nothing was recorded."""
        if not self.traces:
            raise PerfToolError("nothing has been recorded yet; by default, Lightning records from the third step on")
        return analyze_trace(self.traces[-1])

    def stop(self, action_name: str) -> None:
        """End an action. Actions of the sanity check before training are not recorded."""
        module = self._lightning_module
        if module is not None and module.trainer.sanity_checking:
            # Lightning would count steps of the sanity check.
            if recording := self._recording_map.pop(action_name, None):
                recording.__exit__(None, None, None)
            return
        self._last_action = action_name
        super().stop(action_name)

    def summary(self) -> str:
        """Not supported. Raises PerfToolError."""
        raise PerfToolError(
            "HPUProfiler.summary() is not supported; .traces lists its traces, .report analyses the newest"
        )

    def describe(self) -> None:
        """Save what is still being recorded. On rank 0, also print the report, unless ``report`` is False."""
        self._save_the_rest()
        if self.traces and self._shows_report and rank_here() in (None, 0):
            with errors_become_warnings("the recording could not be analysed"):
                show(self.report, self.traces[-1])
        self.teardown(stage=self._stage)

    @staticmethod
    @lru_cache(1)
    def _default_schedule() -> Schedule:
        return torch_profiler.schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE)

    def _should_override_schedule(self) -> bool:
        # A run that is shorter than the default schedule is recorded from its first step.
        mine = self._schedule is not None and self._schedule._schedule == self._default_schedule()
        return mine and self._lightning_module is not None and self._total_steps < WAIT + WARMUP + ACTIVE

    def start(self, action_name: str) -> None:
        """Start an action."""
        if self.profiler is None:
            self._home.move_here()
        super().start(action_name)
        # Handle signals only from now on: Lightning installs its own handler, which may requeue a SLURM job, but only
        # for signals that have no handler.
        if action_name.endswith(tuple(_STEP_FUNCTIONS)):
            self._endings.watch()

    def _save_the_rest(self) -> None:
        if os.getpid() != self._owner:
            # A forked child leaves the recording to this process.
            return
        if self.profiler is not None and not self._home.here:
            warn("perftool: a recording can only be saved by the thread that started it", stacklevel=2)
            return
        with self._endings.undisturbed(), errors_become_warnings("the recording could not be saved"):
            self._watch.end()
            self._delete_profilers()
        self._endings.release()

    def _save(self, profiler: torch_profiler.profile) -> None:
        if os.getpid() != self._owner:
            return
        folder = self._base / (self.dirpath or "hpu_profile")
        folder.mkdir(parents=True, exist_ok=True)
        step = next((name for name in _STEP_FUNCTIONS if self._last_action.endswith(name)), None)
        path = new_trace(folder, "-".join(part for part in (self._stage, self.filename, step) if part))
        self.traces.append(save_trace(profiler, path, self._watch.facts))


def _pytorch_profiler() -> type:
    """Find the base class, in the package that the script has imported or else in the installed one."""
    loaded = [name for name in _HOMES if name.split(".")[0] in sys.modules]
    for name in dict.fromkeys((*loaded, *_HOMES)):
        try:
            home: type = import_module(name).PyTorchProfiler
        except ModuleNotFoundError:
            continue
        return home
    raise MissingExtraError(
        "HPUProfiler needs Lightning; the extra `lightning` installs it: pip install 'habana-perf-tool[lightning]'"
    )


def _joined(own: type, base: type) -> Any:
    return type(own.__name__, (own, base), {"__module__": own.__module__, "__doc__": own.__doc__})
