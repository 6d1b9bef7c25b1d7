"""One rank of many: what a worker does with its trace, and what it hands on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perftool.engine.report import overview
from perftool.engine.report.compose import context_of, unreadable
from perftool.engine.rules.evaluate import Answer, ask
from perftool.errors import InputError, is_interrupt
from perftool.model.inputs import InputFile
from perftool.model.rule import Rule
from perftool.store.catalog import catalog
from perftool.store.device import DeviceSigns, decide_device, device_signs
from perftool.store.handover import HANDED_ON, Handover
from perftool.store.load import Progress
from perftool.store.ranks import base_time
from perftool.store.readings import Reading
from perftool.store.trace_store import TraceStore

# The metadata that the joined store has a use for.
_METADATA = ("deviceProperties", "distributedInfo", "baseTimeNanoseconds")


@dataclass(frozen=True)
class RankTask:
    """A trace to analyse. ``rank`` is the number to file it under, None for the one it states, or else ``spare``."""

    path: str
    spare: int
    rank: int | None = None


@dataclass(frozen=True)
class Shared:
    """What every task needs: the rules, what logs and configuration say, and what a worker may use."""

    rules: tuple[Rule, ...]
    readings: tuple[Reading, ...]
    memory_mb: int
    threads: int


@dataclass(frozen=True)
class RankPart:
    """One rank, analysed. ``stated`` is the rank that the trace itself claims; ``filled`` the tables that have rows."""

    rank: int
    stated: int | None
    read: InputFile
    metadata: Mapping[str, Any]
    tables: Mapping[str, bytes]
    signs: DeviceSigns
    answers: tuple[Answer, ...]
    filled: frozenset[str]

    @property
    def base_ns(self) -> int:
        """What its times count from, in ns since 1970; 0 when they are absolute."""
        return base_time(self.metadata)

    def handover(self, base_ns: int) -> Handover:
        """Its tables, for a store whose times count from ``base_ns``."""
        return Handover(self.tables, shift_ns(self.base_ns, base_ns))


def shift_ns(own_base_ns: int, base_ns: int) -> int:
    """What to add to times so that they count from ``base_ns``; nothing unless both are known."""
    return own_base_ns - base_ns if own_base_ns and base_ns else 0


def analyse_rank(task: RankTask, shared: Shared, progress: Progress | None = None) -> RankPart | InputFile:
    """Analyse one trace on its own; gives the input as unreadable when it is, or when it breaks the program."""
    try:
        with TraceStore.for_files([task.path]) as store:
            store.limit(shared.memory_mb, shared.threads)
            stated = _add(store, task, progress)
            for reading in shared.readings:
                if _concerns(reading, *store.metadata):
                    store.add_reading(reading)
            return _part(store, stated, shared.rules)
    except InputError as error:
        return unreadable(task.path, error)
    except Exception as error:  # the other ranks have their report
        if is_interrupt(error):
            raise
        text = f"{task.path}: internal error: {type(error).__name__}: {error}"
        return unreadable(task.path, InputError(text))


def _add(store: TraceStore, task: RankTask, progress: Progress | None) -> int | None:
    """Read the trace of ``task``; gives the rank that it states."""
    stated: int | None = None

    def number(says: int | None) -> int:
        nonlocal stated
        stated = says
        return next(rank for rank in (task.rank, says, task.spare) if rank is not None)

    store.add_trace(task.path, progress, number)
    return stated


def _concerns(reading: Reading, rank: int) -> bool:
    """Whether a log speaks of ``rank``, or of the run as a whole."""
    ranks = reading.reading.ranks
    return rank in ranks or len(ranks) != 1


def _part(store: TraceStore, stated: int | None, rules: Sequence[Rule]) -> RankPart:
    tables = store.hand_on()
    ((rank, metadata),) = store.metadata.items()
    signs = device_signs(store)
    own = decide_device([signs]).type
    # The device of the run may show on other ranks only.
    context = context_of(store, tuple(overview.steps(store)), None if own == "cpu" else own)
    needed = {name for rule in rules for need in rule.needs for name in need.split(" or ")}
    return RankPart(
        rank=rank,
        stated=stated,
        read=store.inputs_with_issues()[0],
        metadata={key: metadata[key] for key in _METADATA if key in metadata},
        tables=tables,
        signs=signs,
        answers=tuple(ask(store, rule, context) for rule in rules if rule.sql and rule.scope == "rank"),
        filled=frozenset(name for name in (needed | set(HANDED_ON)) if name in catalog() and store.has_rows(name)),
    )
