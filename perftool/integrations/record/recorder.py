"""Records the steps that were asked for, once, inside somebody else's program, and stays out of its way."""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from torch.autograd import profiler as autograd_profiler

from perftool.integrations.activities import activities_here, torch_profiler
from perftool.integrations.call_lines import save_trace
from perftool.integrations.process import new_trace
from perftool.integrations.record.plan import Plan, plan_here
from perftool.integrations.record.steps import Steps
from perftool.integrations.recording import never_in_the_way

_ASIDE = "the program uses torch.profiler itself: record steps aside; analyse the program's own trace"


def begin() -> None:
    """Start to watch for steps, as the plan in the environment says; nothing without one."""
    plan = plan_here()
    if plan is not None:
        with never_in_the_way("the recorder could not start"):
            Recorder(plan)


class Recorder:
    """Records ``plan.active`` steps of this process. A process that was forked off this one records nothing."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._owner = os.getpid()
        self._profiler: torch_profiler.profile | None = None
        self._seen = 0
        self._ours = False
        self._over = False
        self._step_aside_for_others()
        self._steps = Steps(plan.steps_from, self._step_ended)
        atexit.register(self._program_ended)

    def _step_ended(self) -> None:
        if self._over or os.getpid() != self._owner:
            return
        self._seen += 1
        with never_in_the_way("the profiler failed"), self._working():
            if self._profiler is None:
                self._start()
            else:
                self._profiler.step()
        if self._seen > self._plan.wait + self._plan.warmup + self._plan.active:
            self._finish()
            if self._plan.stop_after:
                raise SystemExit(0)

    def _start(self) -> None:
        plan = self._plan
        self._profiler = torch_profiler.profile(
            activities=activities_here(),
            schedule=torch_profiler.schedule(wait=plan.wait, warmup=plan.warmup, active=plan.active, repeat=1),
            on_trace_ready=self._save,
            record_shapes=True,
            profile_memory=plan.memory,
            with_stack=plan.stacks,
        )
        self._profiler.start()

    def _save(self, profiler: torch_profiler.profile) -> None:
        if self._over or self._seen <= self._plan.wait + self._plan.warmup + 1:
            return
        folder = Path(self._plan.folder)
        folder.mkdir(parents=True, exist_ok=True)
        save_trace(profiler, new_trace(folder))

    def _finish(self) -> None:
        """Stop, saving what is being recorded."""
        if self._profiler is not None:
            with never_in_the_way("the recording could not be saved"), self._working():
                self._profiler.stop()
        self._over = True
        self._profiler = None
        self._steps.close()

    def _program_ended(self) -> None:
        if self._over or os.getpid() != self._owner:
            return
        before = self._plan.wait + self._plan.warmup + 1
        if 0 < self._seen <= before:
            self._plan.note(f"the program ended after {self._seen} steps, and recording begins after {before}")
        self._finish()

    @contextmanager
    def _working(self) -> Iterator[None]:
        """While this lasts, a profiler that starts is ours."""
        self._ours = True
        try:
            with warnings.catch_warnings():
                # What the profiler says of its own handling, the user has not asked for.
                warnings.filterwarnings("ignore", module="torch.profiler")
                yield
        finally:
            self._ours = False

    def _step_aside_for_others(self) -> None:
        """Give way when the program makes a profiler of its own: PyTorch runs one at a time."""
        original = autograd_profiler.profile.__init__

        @wraps(original)
        def made(profiler: Any, *args: Any, **named: Any) -> None:
            if not self._ours and not self._over and os.getpid() == self._owner:
                self._plan.note(_ASIDE)
                self._over = True
                self._finish()
            original(profiler, *args, **named)

        autograd_profiler.profile.__init__ = made  # type: ignore[assignment, method-assign]
