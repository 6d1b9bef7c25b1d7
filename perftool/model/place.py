"""Places in the trace and in the user's code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """A line of the user's code, or a module if ``file`` is None (``function`` is then its name).

    ``ns`` is its time, and ``share`` its share of the finding's time. ``line`` is None if only the function is known,
    because it was already running when the recording began. ``file`` is the recorded path. If the file exists on this
    machine (``here``), the path is relative to the project root or to another source root.
    """

    file: str | None
    line: int | None
    function: str
    share: float
    ns: int = 0
    here: bool = False

    def __str__(self) -> str:
        """Return the text ``file:line function``, which editors and terminals can open. If the line is unknown, the
        text is ``function (file)``; for a module, it is only the module's name.
        """
        if self.file is None:
            return self.function
        return f"{self.file}:{self.line} {self.function}" if self.line else f"{self.function} ({self.file})"


@dataclass(frozen=True)
class Location:
    """A place in the trace. All fields are optional; times are in ns, as in the file.

    ``sources`` lists the lines of code responsible for it: at most three, in descending order of time.
    """

    track: str | None = None
    step: int | None = None
    ts_ns: int | None = None
    dur_ns: int | None = None
    name: str | None = None
    sources: tuple[Source, ...] = ()

    @property
    def source(self) -> Source | None:
        """The source with the most time; None if there are no sources."""
        return next(iter(self.sources), None)
