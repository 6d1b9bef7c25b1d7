"""Finds the traces that the program's own profilers write, and saves the traces that would be lost."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from perftool.integrations.activities import ProfilerAction, torch_profiler
from perftool.integrations.endings import Endings
from perftool.integrations.home_thread import HomeThread
from perftool.integrations.process import new_trace
from perftool.integrations.record.plan import OWN_TRACE, Note, Plan
from perftool.integrations.recording import errors_become_warnings
from perftool.integrations.saving import save_trace

_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
_OURS = "perftool.integrations.record.recorder"
_SAVED_FOR_PROGRAM = "the program ended before it wrote its own recording; `record` wrote it"
_LOST = "the program's own recording is lost: the program ended in a different thread from the one that recorded"


class ProgramProfilers:
    """Watches the program's own profilers, and saves an unsaved recording when the program ends."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._profiler: weakref.ref[torch_profiler.profile] | None = None
        self._running = False
        # Whether the program's own handler is running. PyTorch calls it after it has stopped a recording.
        self._handling = False
        self._rescuing = False
        self._written: Any = None
        self._endings = Endings(self._rescue)
        self._home = HomeThread()
        self._around("start", self._starts)
        self._around("step", lambda *_: self._home.move_here())
        self._around("stop", self._stops)
        self._around("export_chrome_trace", self._writes)
        self._around_handler()

    def _around(self, name: str, notify: Callable[..., None]) -> None:
        original = getattr(torch_profiler.profile, name)

        @wraps(original)
        def call(profiler: Any, *args: Any, **named: Any) -> Any:
            if _is_ours(profiler):
                return original(profiler, *args, **named)
            with self._endings.delayed():
                result = original(profiler, *args, **named)
                with errors_become_warnings("the program's own recording could not be monitored"):
                    notify(profiler, *args, **named)
            return result

        setattr(torch_profiler.profile, name, call)

    def _around_handler(self) -> None:
        """Let the program's handler run as it would without us: signals reach it, and no lock is held."""
        original = torch_profiler.profile._trace_ready

        @wraps(original)
        def call(profiler: Any) -> None:
            if _is_ours(profiler):
                original(profiler)
            elif not self._rescuing:
                self._handling = True
                try:
                    with self._endings.delivered():
                        original(profiler)
                finally:
                    self._handling = False

        torch_profiler.profile._trace_ready = call  # type: ignore[assignment, method-assign]

    def _starts(self, profiler: torch_profiler.profile) -> None:
        self._profiler, self._running = weakref.ref(profiler), True
        self._home.move_here()
        self._endings.watch()

    def _stops(self, profiler: torch_profiler.profile) -> None:
        self._running = False
        self._rest(profiler)

    def _writes(self, profiler: torch_profiler.profile, path: str | os.PathLike[str], *_: Any, **__: Any) -> None:
        # If the disk is full, PyTorch raises no error and leaves no file.
        if os.path.isfile(path):
            self._written = _result(profiler)
            self._rest(profiler)
            self._plan.note(Note("saved", OWN_TRACE, os.path.abspath(path)))

    def _rest(self, profiler: torch_profiler.profile) -> None:
        """Stop watching if no recording can be lost."""
        if not self._running and _result(profiler) is self._written:
            self._endings.release()

    def _rescue(self) -> None:
        profiler = self._profiler() if self._profiler else None
        if profiler is None:
            return
        with errors_become_warnings("the program's own recording could not be saved"):
            if self._running and not self._handling and profiler.current_action in _RECORDING:
                if not self._home.here:
                    self._plan.note(Note("explained", _LOST))
                    return
                # Without us, the program's handler would not run now.
                self._rescuing = True
                try:
                    profiler.stop()
                finally:
                    self._rescuing = False
            if (result := _result(profiler)) is None or result is self._written:
                return
            folder = Path(self._plan.folder)
            folder.mkdir(parents=True, exist_ok=True)
            saved = save_trace(profiler, new_trace(folder))
            self._plan.note(Note("saved", _SAVED_FOR_PROGRAM, str(saved)))


def _is_ours(profiler: Any) -> bool:
    return getattr(profiler.on_trace_ready, "__module__", None) == _OURS


def _result(profiler: torch_profiler.profile) -> Any:
    """Return the recording of ``profiler``, or None."""
    return getattr(profiler.profiler, "kineto_results", None)
