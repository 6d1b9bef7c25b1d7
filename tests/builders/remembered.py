"""Keeps results and stores for tests that repeat an analysis with the same files, rules and schedule.

Tests of options, exit codes and outputs use it, because they would otherwise spend most of their time on the analysis.
"""

from __future__ import annotations

import atexit
import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from perftool.engine.analysis import Run
from perftool.engine.rules.allowance import _ALLOWANCES
from perftool.store.trace_store import TraceStore

_Key = tuple[Any, ...]
# An open store takes tens of megabytes.
_MOST_STORES = 4


class Memory:
    """All results, and the open stores of the last few inputs."""

    def __init__(self) -> None:
        self.answers: dict[_Key, Any] = {}
        self._stores: dict[_Key, tuple[TraceStore, ExitStack]] = {}
        atexit.register(self.close)

    def store(self, key: _Key, run: Run) -> TraceStore:
        """Return the store over all files of ``run``, kept under ``key``."""
        kept = self._stores.pop(key, None)
        if kept is None:
            with ExitStack() as until, _opening(run, until):
                kept = (_WHOLE(run), until.pop_all())
        self._stores[key] = kept
        if len(self._stores) > _MOST_STORES:
            self._stores.pop(next(iter(self._stores)))[1].close()
        # Rules of packs share a time allowance per run, and each use of a kept store must begin with a full one.
        _ALLOWANCES.pop(kept[0], None)
        return kept[0]

    def close(self) -> None:
        for _, until in self._stores.values():
            until.close()
        self._stores.clear()


_WHOLE = Run.__dict__["whole"].func


@contextmanager
def _opening(run: Run, until: ExitStack) -> Iterator[None]:
    """Within the block, make ``run`` leave what it opens open until ``until`` is closed."""
    own, run._open_until = run._open_until, until
    try:
        yield
    finally:
        run._open_until = own


def remember(monkeypatch: pytest.MonkeyPatch, memory: Memory) -> None:
    """Make runs take results and stores from ``memory``, and add new ones to it."""
    answered = Run._answered

    def answer_of(self: Run, answer: Any) -> Any:
        key = _key(self)
        if key is None:
            return answered(self, answer)
        key = (answer, *key, self._rules, repr(self._schedule), repr(self._batches))
        if key not in memory.answers:
            memory.answers[key] = answered(self, answer)
        return memory.answers[key]

    def whole(self: Run) -> TraceStore:
        key = _key(self)
        return _WHOLE(self) if key is None or self._before.parts else memory.store(key, self)

    kept = cached_property(whole)
    kept.__set_name__(Run, "whole")
    monkeypatch.setattr(Run, "_answered", answer_of)
    monkeypatch.setattr(Run, "whole", kept)


def _key(run: Run) -> _Key | None:
    """Return the inputs of ``run`` and their contents, or None if one is missing or can be read only once.

    What only the command says about the inputs (such as notes on files that it leaves out) does not count.
    """
    inputs = replace(
        run._inputs, notes=(), left_out=(), named=frozenset(), unread_parts=(), doubts=(), is_picked=False
    )  # fmt: skip
    paths = inputs.files
    if not all(map(os.path.isfile, paths)):
        return None
    contents = tuple(hashlib.sha256(Path(path).read_bytes()).digest() for path in paths)
    return inputs, contents
