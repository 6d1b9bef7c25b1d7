"""A callback for Hugging Face's Trainer, and for optimum-habana's, which accepts the same callbacks."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

from perftool.errors import MissingExtraError, PerfToolError
from perftool.integrations.recording import Recording, profile

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    raise MissingExtraError("ProfileCallback needs transformers: pip install transformers accelerate") from error

if TYPE_CHECKING:
    from perftool.model.report import Report


class ProfileCallback(TrainerCallback):
    """Records a few training steps, and prints what slows them down when training ends.

    Use it as ``Trainer(..., callbacks=[ProfileCallback("runs/x")])``. A step is an optimizer step, even with gradient
    accumulation. ``options`` are the options of ``perftool.profile``; every rank saves its own trace in ``folder``. If
    training ends with an error, the recording is saved, but no report is printed.
    """

    def __init__(self, folder: str | PathLike[str] = "hpu_profile", **options: Any) -> None:
        self._folder = folder
        self._options = options
        self._recording: Recording | None = None
        # Called only so that invalid options raise an error before training starts.
        profile(folder, **options)

    @property
    def report(self) -> Report:
        """The report on the trace of this rank. Raises PerfToolError if nothing was recorded."""
        if self._recording is None:
            raise PerfToolError("nothing was recorded: training has not started")
        return self._recording.report

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Start recording."""
        self._recording = profile(self._folder, **self._options).__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Count a step."""
        if self._recording is not None:
            self._recording.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Save and report."""
        if self._recording is not None:
            self._recording.__exit__(None, None, None)
