"""``HPUProfiler`` for Lightning, from ``lightning`` or ``pytorch_lightning``, whichever the script uses."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perftool.errors import MissingExtraError, PerfToolError
from perftool.integrations.activities import ProfilerActivity, activities_here, torch_profiler
from perftool.integrations.call_lines import save_trace
from perftool.integrations.process import new_trace, rank_here
from perftool.integrations.recording import analyze_trace, never_in_the_way, show

if TYPE_CHECKING:
    from pytorch_lightning.profilers import PyTorchProfiler as _PyTorchProfiler

    from perftool.model.report import Report
else:
    # Which of the two packages it is shows when a profiler is made.
    _PyTorchProfiler = object

_HOMES = ("lightning.pytorch.profilers", "pytorch_lightning.profilers")
_STEP_FUNCTIONS = ("training_step", "validation_step", "test_step", "predict_step")


class HPUProfiler(_PyTorchProfiler):
    """Records a few steps of what a Trainer does, host and device, and says at the end what slows it down.

    ``Trainer(profiler=HPUProfiler())``. It is Lightning's PyTorchProfiler with the activities of this machine (on a
    machine without a Gaudi or another device the trace holds the host only). Every rank saves its trace in
    ``dirpath`` (else the Trainer's log directory, else ``hpu_profile``); ``filename`` begins its name. Own actions are
    recorded by ``with profiler.profile("name"):`` or ``start`` and ``stop``. ``report`` switches off the text at the
    end. Other arguments are those of PyTorchProfiler and torch.profiler.profile.

    Limits: recording makes a run slower, so its wall-clock time is not that of the run (SimpleProfiler measures
    that); ``summary()`` is not supported; the Trainer knows no profiler by the name of "hpu", give the object.
    """

    def __new__(cls, *arguments: Any, **named: Any) -> HPUProfiler:
        """A profiler of the Lightning in use. Raises MissingExtraError when there is none."""
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
        self._shows_report = report
        self._last_action = ""
        others.setdefault("on_trace_ready", self._save)
        super().__init__(
            dirpath=dirpath,
            filename=filename,
            activities=list(activities_here() if activities is None else activities),
            record_shapes=record_shapes,
            **others,
        )

    @property
    def report(self) -> Report:
        """What the newest trace of this rank says. Raises PerfToolError when nothing was recorded."""
        if not self.traces:
            raise PerfToolError("nothing was recorded yet; Lightning records from the third step on")
        return analyze_trace(self.traces[-1])

    def stop(self, action_name: str) -> None:
        """End an action."""
        module = self._lightning_module
        if module is not None and module.trainer.sanity_checking:
            # Lightning would count the validation before the training as the first steps of the recording.
            if recording := self._recording_map.pop(action_name, None):
                recording.__exit__(None, None, None)
            return
        self._last_action = action_name
        super().stop(action_name)

    def summary(self) -> str:
        """Not supported. Raises PerfToolError."""
        raise PerfToolError("HPUProfiler.summary() is not supported; its trace is in .traces, the analysis in .report")

    def describe(self) -> None:
        """Save what is still being recorded, and print the report of rank 0."""
        with never_in_the_way("the recording could not be saved"):
            self._delete_profilers()
        if self.traces and self._shows_report and rank_here() in (None, 0):
            with never_in_the_way("the recording could not be analysed"):
                show(self.report, self.traces[-1])
        self.teardown(stage=self._stage)

    def _save(self, profiler: torch_profiler.profile) -> None:
        folder = Path(self.dirpath or "hpu_profile")
        folder.mkdir(parents=True, exist_ok=True)
        step = next((name for name in _STEP_FUNCTIONS if self._last_action.endswith(name)), None)
        path = new_trace(folder, "-".join(part for part in (self._stage, self.filename, step) if part))
        save_trace(profiler, path)
        self.traces.append(path)


def _pytorch_profiler() -> type:
    """The class to build on: that of the package which the script has imported, else of the one installed."""
    loaded = [name for name in _HOMES if name.split(".")[0] in sys.modules]
    for name in dict.fromkeys((*loaded, *_HOMES)):
        try:
            home: type = import_module(name).PyTorchProfiler
        except ModuleNotFoundError:
            continue
        return home
    raise MissingExtraError(
        "HPUProfiler needs Lightning; the extra `lightning` brings it: pip install 'habana-perf-tool[lightning]'"
    )


def _joined(own: type, base: type) -> Any:
    return type(own.__name__, (own, base), {"__module__": own.__module__, "__doc__": own.__doc__})
