"""Records the requested steps once, inside the user's program."""

from __future__ import annotations

import atexit
import codecs
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import torch

# The profiler imports this module when it starts. By then, a program's own import hook might refuse that.
import torch.profiler.python_tracer
from torch.autograd import profiler as autograd_profiler
from torch.optim.optimizer import Optimizer
from torch.utils.data import dataloader, get_worker_info

from perftool.errors import is_interrupt
from perftool.integrations.activities import ProfilerAction, activities_here, torch_profiler
from perftool.integrations.compiler import skipped, uncompiled
from perftool.integrations.endings import Endings
from perftool.integrations.home_thread import HomeThread
from perftool.integrations.ignored_warnings import warnings_ignored
from perftool.integrations.machine import Schedule, Watch
from perftool.integrations.modes import unseen_by_modes
from perftool.integrations.own_threads import file_limit_raises, signals_blocked
from perftool.integrations.process import new_trace
from perftool.integrations.record.deadline import Deadline
from perftool.integrations.record.leaving import Leaving
from perftool.integrations.record.loader_workers import LoaderWorkers
from perftool.integrations.record.plan import Note, Plan, plan_here
from perftool.integrations.record.program_profilers import ProgramProfilers
from perftool.integrations.record.repeated_calls import RepeatedCalls
from perftool.integrations.record.steps import First, Steps, is_traced
from perftool.integrations.recording import errors_become_warnings
from perftool.integrations.saving import save_trace
from perftool.units import NS_PER_MS, NS_PER_S, format_ns

_ASIDE = "the program uses torch.profiler itself, so `record` does not record"
# If the recorded steps take less time than this, the message suggests recording more of them, because steps may be
# calls to a small module, such as a detector.
_SHORT_NS = 100 * NS_PER_MS
# A recording ends early if the next step takes longer than _LATE_S (in s) plus _LATE times what the whole recording
# would take at the speed of the last steps.
_LATE_S, _LATE = 0.3, 3
# How long to wait for the program's second step, in s. The length of the first step is unknown.
_SECOND_S = 60.0
# PyTorch's stack tracer reads the optimizer's state when this method is called.
_STEP_CODE = "_optimizer_step_code"
_IN_BACKWARD = (
    "the optimizer steps inside the backward pass, where no recording can start; use --steps-from loader to count "
    "batches as steps, or --steps-from forward to count calls to the model"
)
_LOST = "the recording is lost: the program ended in a different thread from the one whose steps were recorded"

_OTHERS_TRAIN = (
    "only another process of the program has an optimizer, and it took no step; --steps-from forward also counts calls "
    "to a model in processes without an optimizer"
)
_FORCED = "after its recording, the program waited forever, so `record` ended it without running its exit handlers"


def begin() -> None:
    """Start watching for steps if the environment contains a plan."""
    plan = plan_here()
    if plan is not None:
        with errors_become_warnings("the recorder could not start"):
            Recorder(plan)


class Recorder:
    """Records ``plan.active`` steps of this process.

    A child that is forked before the first step records its own steps; a child that is forked later records nothing.
    A process without an optimizer records nothing while another process of the program has one.
    Once the profiler runs, only the steps of its thread are counted, and the recording ends before that thread ends.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._owner = os.getpid()
        # These import what they need. During its steps, the program may be unable to open files.
        codecs.lookup("ascii")
        with unseen_by_modes():
            pass
        self._profiler: torch_profiler.profile | None = None
        # The program did not choose this schedule, so PyTorch's advice on it does not concern the program.
        with warnings_ignored(message="Profiler won't be using warmup"):
            self._planned: Schedule = torch_profiler.schedule(
                wait=plan.wait, warmup=plan.warmup, active=plan.active, repeat=1
            )
        self._endings = Endings(self._program_ended)
        self._watch = self._new_watch()
        self._home = HomeThread(self._program_ended)
        self._repeated_calls = RepeatedCalls(plan.trials)
        self._program_profilers = ProgramProfilers(plan)
        self._loader_workers = LoaderWorkers()
        if not plan.stacks:
            self._loader_workers.end()
        self._began_ns = 0
        self._seen = 0
        self._ours = False
        self._stackless = False
        self._over = False
        self._unread_state: _UnreadState | None = None
        self._deadline: Deadline | None = None
        self._leaving = Leaving(self._forced) if plan.stop_after else None
        self._stepped_ns = 0
        self._lengths_ns: tuple[int, ...] = ()
        self._why_early = ""
        self._stop_for_other_profilers()
        self._is_child = parent_process() is not None
        self._helps = False
        self._steps = Steps(plan.steps_from, self._step_ended, self._only_others_train)
        self._firsts = [First(Optimizer, self._optimizer_made), First(dataloader._BaseDataLoaderIter, self._reconsider)]
        atexit.register(self._program_ended)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._loader_workers.before_fork, after_in_child=self._forked)
        plan.note(Note("ready"))

    def _step_ended(self) -> None:
        # A module call in a loader process is not a step.
        if self._over or os.getpid() != self._owner or get_worker_info() is not None:
            return
        if self._is_elsewhere():
            return
        with self._endings.undisturbed():
            # Another thread may have started recording since the check above.
            if self._over or self._is_elsewhere():
                return
            self._guarded(self._use_step)

    def _use_step(self) -> None:
        undecided = self._plan.steps_from == "auto" and not self._steps.are_of_optimizer and not self._began_ns
        if undecided and self._only_others_train():
            self._start_over()
        else:
            self._count()

    def _new_watch(self) -> Watch:
        watch = Watch(self._planned)
        watch.is_urgent = lambda: self._endings.is_urgent
        return watch

    def _only_others_train(self) -> bool:
        found = self._plan.only_others_train()
        if found and not self._helps:
            self._helps = True
            self._plan.note(Note("ready", _OTHERS_TRAIN))
        return found

    def _start_over(self) -> None:
        """Forget the steps before a recording, and decide again what a step is."""
        self._repeated_calls.end()
        if self._profiler is not None:
            self._profiler.stop()
        self._profiler = None
        self._repeated_calls = RepeatedCalls(self._plan.trials)
        self._seen = 0
        self._watch = self._new_watch()
        self._steps.start_over()
        self._release()

    def _optimizer_made(self) -> None:
        self._plan.optimizer_made()
        self._reconsider()

    def _reconsider(self) -> None:
        """Start over if calls to a module count as steps only because there was no optimizer or loader until now."""
        if self._over or os.getpid() != self._owner or self._is_elsewhere():
            return
        with self._endings.undisturbed():
            if self._plan.steps_from == "auto" and self._steps.called and not self._began_ns:
                self._guarded(self._start_over)

    def _count(self) -> None:
        """Count a step of this thread, and record as planned."""
        self._home.move_here()
        self._seen += 1
        recorded = self._seen - self._plan.before
        self._repeated_calls.end()
        if recorded == 1:
            self._plan.note(Note("recording", self._estimate()))
        if recorded > 0 and self._profiler is not None:
            self._profiler.step()
        else:
            # PyTorch's threads start before the recording, and remain afterwards.
            with signals_blocked():
                self._start() if self._profiler is None else self._profiler.step()
        # The hooks slow down the last warm-up step, whose times are not used. Without stacks, the trace has no modules.
        if recorded == -1 and self._plan.warmup and self._plan.stacks:
            self._repeated_calls.begin()
        if recorded == 0:
            self._began_ns = time.monotonic_ns()
            self._loader_workers.begin()
            self._plan.note(Note("recording"))
            # PyTorch records the stacks of all threads that exist when the recording begins. If the system refuses
            # another thread, the recording has no deadline.
            with suppress(RuntimeError):
                self._deadline = Deadline(self._end_early)
        patience_s = self._patience_s()
        if self._deadline is not None:
            self._deadline.postpone(patience_s)
        if recorded >= self._plan.active:
            self._finish()
            if self._leaving is not None and self._may_leave():
                self._leaving.leave()

    def _patience_s(self) -> float:
        """How long the next step may take, in s."""
        now, before = time.monotonic_ns(), self._stepped_ns
        self._stepped_ns = now
        if not before:
            return _SECOND_S
        # The first step may compile the program, so only the last two count.
        self._lengths_ns = (*self._lengths_ns, now - before)[-2:]
        return _LATE_S + _LATE * self._plan.active * max(self._lengths_ns) / NS_PER_S

    def _end_early(self, why: str) -> None:
        """End the recording before its last step. If that is impossible now, this is called again."""
        deadline = self._deadline
        if deadline is None or self._over or self._endings.works_here or self._is_elsewhere() or is_traced():
            return
        self._why_early = f"; it ended early, because {why}"
        with self._endings.resending(deadline.send):
            self._finish()
        if self._leaving is not None and self._may_leave():
            deadline.leave()
            self._leaving.insist()

    def _may_leave(self) -> bool:
        """Whether the program can do without this process. The parent of a child that only calls a model may wait for
        its results forever, or start another one."""
        return self._steps.are_of_optimizer or not self._is_child

    def _estimate(self) -> str:
        """Estimate how long the recording will take, after its first step."""
        step, planned = self._watch.usual_step_ns, self._plan.active
        quiet = "" if step is None else f"{format_ns(step)} a step without the profiler; "
        whole = format_ns((time.monotonic_ns() - self._began_ns) * planned)
        return f"recording {_steps(planned)} now: {quiet}recording takes about {whole}, then the trace is saved"

    def _start(self) -> None:
        plan = self._plan
        # PyTorch records stacks with a profile function in every thread, which would replace the program's own.
        self._stackless = sys.getprofile() is not None or threading.getprofile() is not None
        self._profiler = torch_profiler.profile(
            activities=activities_here(),
            schedule=self._watch.schedule,
            on_trace_ready=self._save,
            record_shapes=True,
            profile_memory=plan.memory,
            with_stack=plan.stacks and not self._stackless,
        )
        self._endings.watch()
        self._unread_state = _UnreadState()
        self._profiler.start()

    def _save(self, profiler: torch_profiler.profile) -> None:
        if self._seen <= self._plan.before and not self._began_ns:
            return
        whole_ns = time.monotonic_ns() - self._began_ns
        folder = Path(self._plan.folder)
        folder.mkdir(parents=True, exist_ok=True)
        before = time.monotonic_ns()
        with file_limit_raises():
            try:
                saved = save_trace(profiler, new_trace(folder), self._facts)
            finally:
                # If PyTorch could not write all of a file, it tries again when the results are deleted.
                profiler.profiler.kineto_results = None  # type: ignore[union-attr]
        measuring_ns = self._watch.measuring_ns
        saving_ns = time.monotonic_ns() - before - measuring_ns
        # PyTorch stops the profiler before it calls this method, so the rest of ``whole_ns`` is the time to stop.
        steps_ns = min(self._watch.recorded_ns or whole_ns, whole_ns)
        whole = self._seen - self._plan.before
        what = _steps(whole) if whole else "part of a step"
        text = (
            f"recording {what} took {format_ns(steps_ns)}, stopping the profiler "
            f"{format_ns(whole_ns - steps_ns)}, measuring ops {format_ns(measuring_ns)}, "
            f"and saving {format_ns(saving_ns)}"
        )
        if self._steps.called and steps_ns < _SHORT_NS:
            text += (
                f". A step is a call to {self._steps.called}; if the program calls it several times for each of its "
                "own steps, record more calls, for example --active 100"
            )
        elif steps_ns < _SHORT_NS:
            text += "; if the program does other work between some steps, record more of them, for example --active 100"
        if self._plan.stacks and self._stackless:
            text += "; it has no Python stacks, because the program uses its own Python profiler"
        if trying_s := self._repeated_calls.trials.took_s:
            text += f"; before that, trying changes on a copy of the model took {format_ns(round(1e9 * trying_s))}"
        self._plan.note(Note("saved", text + self._why_early, str(saved)))

    def _facts(self, trace: Path) -> dict[str, Any]:
        """Describe the machine and the steps of ``trace``."""
        facts = self._watch.facts(trace)
        calls = self._repeated_calls
        steps = {**facts["steps"], "called": self._steps.called}
        examined: dict[str, Any] = {"trials": calls.trials.found()} if calls.trials.found() else {}
        if found := self._loader_workers.found():
            examined["loader_calls"] = found
        if calls.found is not None:
            examined["repeated_calls"] = calls.found
            examined |= {"padded_inputs": calls.padded.found(), "ignored_targets": calls.ignored.found()}
        return {**facts, "steps": steps, **examined}

    def _is_elsewhere(self) -> bool:
        """Whether the profiler runs in another thread; only that thread can stop it."""
        runs = self._profiler is not None and self._profiler.current_action is not ProfilerAction.NONE
        return runs and not self._home.here

    def _finish(self) -> None:
        """Stop and save. A recording that belongs to another thread ends with that thread."""
        if self._is_elsewhere():
            self._over = True
            self._steps.close()
            return
        with self._endings.undisturbed():
            if self._profiler is not None and os.getpid() == self._owner:
                self._guarded(partial(self._stop, self._profiler))
            self._close()

    def _stop(self, profiler: torch_profiler.profile) -> None:
        self._watch.end()
        profiler.stop()

    def _close(self) -> None:
        self._over = True
        self._profiler = None
        self._repeated_calls.end()
        self._loader_workers.end()
        if self._deadline is not None:
            self._deadline.close()
        with errors_become_warnings("the recorder could not remove its hooks"):
            self._steps.close()
            for first in self._firsts:
                first.remove()
            self._release()

    def _release(self) -> None:
        """Undo what ``_start`` did besides starting the profiler."""
        self._endings.release()
        if self._unread_state is not None:
            self._unread_state.remove()

    def _program_ended(self) -> None:
        if os.getpid() != self._owner or (self._over and self._profiler is None):
            return
        if self._is_elsewhere():
            self._plan.note(Note("explained", _LOST))
        elif not self._seen and self._steps.in_backward:
            self._plan.note(Note("explained", _IN_BACKWARD))
        elif self._seen <= self._plan.before < self._steps.batches and not self._helps:
            text = "no optimizer took a step; --steps-from loader counts each batch of a data loader as a step"
            self._plan.note(Note("explained", text))
        elif 0 < self._seen <= self._plan.before and not self._began_ns:
            text = f"the program ended after {_steps(self._seen)}, but recording starts after {self._plan.before}"
            earlier = "; to start earlier, lower --wait and --warmup" if self._plan.wait + self._plan.warmup else ""
            self._plan.note(Note("explained", text + earlier))
        self._finish()

    def _forced(self) -> None:
        self._plan.note(Note("explained", _FORCED))

    def _forked(self) -> None:
        self._loader_workers.forked()
        if self._seen or self._over:
            self._over = True
            self._repeated_calls.end()
            self._loader_workers.end()
        else:
            self._owner = os.getpid()
            self._is_child = True

    def _guarded(self, work: Callable[[], None]) -> None:
        """Call ``work``, and mark a profiler that it starts as ours. An error becomes a note and ends only the
        recording."""
        before, self._ours = self._ours, True
        try:
            # The profiler warns about how we use it, which does not concern the program.
            with warnings_ignored(module=r"torch\.profiler"), unseen_by_modes():
                work()
        except Exception as error:  # noqa: BLE001 - a run must not end because of its profiler
            if is_interrupt(error):
                raise KeyboardInterrupt from None
            self._plan.note(Note("explained", f"the recording failed ({type(error).__name__}: {error})"))
            # The profiler may still run, which would slow down the program.
            with suppress(Exception):
                if self._profiler is not None and torch.autograd._profiler_enabled():  # type: ignore[attr-defined]
                    self._profiler.stop_trace()
            self._close()
        finally:
            self._ours = before

    def _stop_for_other_profilers(self) -> None:
        """Stop recording if the program creates its own profiler, because PyTorch runs only one at a time."""
        kinds = [autograd_profiler.profile, autograd_profiler.emit_itt, autograd_profiler.emit_nvtx]
        # PyTorch announces that a later version will not have this one.
        if legacy := getattr(torch.autograd, "profiler_legacy", None):
            kinds.append(legacy.profile)
        for kind in kinds:
            self._stop_for(kind)

    def _stop_for(self, kind: Any) -> None:
        original = kind.__init__

        @skipped
        @wraps(original)
        def made(profiler: Any, *args: Any, **named: Any) -> None:
            enabled = args[0] if args else named.get("enabled", True)
            if enabled:
                self._step_aside()
            original(profiler, *args, **named)

        kind.__init__ = made

    @uncompiled
    def _step_aside(self) -> None:
        if not self._ours and not self._over and os.getpid() == self._owner:
            self._plan.note(Note("explained", _ASIDE))
            self._finish()


class _UnreadState:
    """Keeps PyTorch from reading the state of optimizers while it records stacks, until ``remove``.

    PyTorch reads the state when ``_STEP_CODE`` is called, and fails if an optimizer's state for a parameter is not a
    dict. PyTorch looks the method up in the class, so the class still returns the original. Optimizer objects get a
    function that does nothing.
    """

    def __init__(self) -> None:
        self._original = Optimizer.__dict__[_STEP_CODE]
        setattr(Optimizer, _STEP_CODE, self)

    @skipped
    def __get__(self, optimizer: Optimizer | None, kind: type) -> Any:
        return self._original if optimizer is None else _nothing

    def remove(self) -> None:
        if Optimizer.__dict__[_STEP_CODE] is self:
            setattr(Optimizer, _STEP_CODE, self._original)


@skipped
def _nothing() -> None:
    """Do nothing."""


def _steps(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"
