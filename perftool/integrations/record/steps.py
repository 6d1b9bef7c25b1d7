"""Where a step of somebody else's program ends: at its optimizer, its data loader, or its outermost module.

An optimizer that has stepped ends the step. Without one, a fetch from a data loader begins one; without that, a call
of the module that was called first.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.data import dataloader

from perftool.integrations.record.plan import StepsFrom

# So many batches without a step of the optimizer that exists: it is not used here.
_PATIENCE = 50


class Steps:
    """Calls ``ended`` when a step of the program ends, from now until ``close``."""

    def __init__(self, source: StepsFrom, ended: Callable[[], None]) -> None:
        self._source = source
        self._ended = ended
        self._leader: weakref.ref[Any] | None = None
        self._followers: set[int] = set()
        self._fetches = 0
        self._handles: list[Any] = []
        self._next: Any = None
        if source in ("auto", "optimizer"):
            self._handles.append(register_optimizer_step_post_hook(self._stepped))
        if source in ("auto", "loader"):
            self._watch_loaders()
        if source in ("auto", "forward"):
            self._first_call = register_module_forward_pre_hook(self._called)
            self._handles.append(self._first_call)

    def close(self) -> None:
        """Take every hook away again."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._release_loaders()

    def _settle(self, source: StepsFrom) -> None:
        """Listen to ``source`` alone from now on."""
        if self._source == "auto":
            self._source = source
            keep = self._handles[:1] if source == "optimizer" else []
            for handle in self._handles[len(keep) :]:
                handle.remove()
            self._handles = keep
            if source != "loader":
                self._release_loaders()

    def _stepped(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._source not in ("auto", "optimizer"):
            return
        self._settle("optimizer")
        leader = self._leader() if self._leader else None
        if leader is None or id(optimizer) in self._followers:
            # The first one leads; of several, one that steps twice while the leader rests takes over.
            leader, self._leader = optimizer, weakref.ref(optimizer)
        if optimizer is leader:
            self._followers.clear()
            self._ended()
        else:
            self._followers.add(id(optimizer))

    def _watch_loaders(self) -> None:
        iterator = dataloader._BaseDataLoaderIter
        self._next = original = iterator.__next__

        @wraps(original)
        def fetch(loader: Any) -> Any:
            self._fetched()
            return original(loader)

        iterator.__next__ = fetch  # type: ignore[assignment, method-assign]

    def _release_loaders(self) -> None:
        if self._next is not None:
            dataloader._BaseDataLoaderIter.__next__, self._next = self._next, None  # type: ignore[method-assign]

    def _fetched(self) -> None:
        self._fetches += 1
        if self._source == "auto" and (not _any_of(Optimizer) or self._fetches > _PATIENCE):
            self._settle("loader")
        if self._source == "loader":
            self._ended()

    def _called(self, module: torch.nn.Module, args: Any) -> None:
        """The first call of a module. The hook of all modules goes before anything can be compiled with it."""
        self._first_call.remove()
        if self._source == "auto":
            if _any_of(Optimizer) or _any_of(dataloader._BaseDataLoaderIter):
                return
            self._settle("forward")
        self._handles = [module.register_forward_pre_hook(lambda *_: self._ended())]
        self._ended()


def _any_of(kind: type) -> bool:
    """Whether an object of ``kind`` exists."""
    return any(issubclass(type(one), kind) for one in gc.get_objects())
