"""Ignores warnings inside the user's program without other effects on the program."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class IgnoredWarnings:
    """Ignores, until ``remove`` is called, warnings whose message begins with a match of the pattern ``message`` and
    whose module begins with a match of ``module``.

    ``warnings.catch_warnings`` and ``filterwarnings`` would make Python forget which of the program's warnings it has
    already shown, and show them again.
    """

    def __init__(self, *, message: str = "", module: str = "") -> None:
        self._filter = ("ignore", re.compile(message, re.IGNORECASE), Warning, re.compile(module), 0)
        warnings.filters.insert(0, self._filter)  # type: ignore[attr-defined]

    def remove(self) -> None:
        with suppress(ValueError):
            warnings.filters.remove(self._filter)  # type: ignore[attr-defined]


@contextmanager
def warnings_ignored(*, message: str = "", module: str = "") -> Iterator[None]:
    """Ignore the warnings that match, as in ``IgnoredWarnings``, in this block."""
    ignored = IgnoredWarnings(message=message, module=module)
    try:
        yield
    finally:
        ignored.remove()
