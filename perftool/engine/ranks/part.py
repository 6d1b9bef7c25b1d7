"""Analyses the traces of one task, and exports the results of their ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from perftool.engine.ranks.batch import Batch, RankFile
from perftool.engine.ranks.schedule import Progress, TaskFailed
from perftool.engine.report import overview
from perftool.engine.report.compose import context_of, unreadable
from perftool.engine.rules.evaluate import ask_all
from perftool.engine.rules.predict import predicted
from perftool.engine.rules.rule_queries import Answer
from perftool.errors import UNFORESEEN, InputError, OutOfMemoryError, is_interrupt, unexpected_input_error
from perftool.model.inputs import InputFile
from perftool.model.replayed import ReplayModel
from perftool.model.rule import Rule
from perftool.readers.files.host_name import HOST_KEYS
from perftool.replay.tables import replayed_rows
from perftool.store.catalog import catalog
from perftool.store.device import DeviceSigns, decide_device, device_signs
from perftool.store.rank_export import EXPORTED, ExportedTables
from perftool.store.ranks import base_time
from perftool.store.readings import Reading
from perftool.store.shift import Shift, shift_to
from perftool.store.trace_store import TraceStore

if TYPE_CHECKING:
    from perftool.engine.drawing.pictures import Taken, Wanted

# The keys in trace metadata that the merged store uses.
_METADATA = ("deviceProperties", "distributedInfo", "baseTimeNanoseconds", *HOST_KEYS)


@dataclass(frozen=True)
class Shared:
    """What all tasks share: rules, readings of logs and configuration, limits per worker, and the number of ranks."""

    rules: tuple[Rule, ...]
    readings: tuple[Reading, ...]
    memory_mb: int
    threads: int
    ranks: int


@dataclass(frozen=True)
class Facts:
    """The results that a store exports about its ranks: ``tables`` as Parquet, ``answers`` of rules, and the names of
    the tables that have rows (``filled``). If ``foreign`` is set, the results come from an untrusted file.
    """

    base_ns: int
    metadata: Mapping[int, Mapping[str, Any]]
    tables: Mapping[str, bytes]
    signs: DeviceSigns
    answers: tuple[Answer, ...]
    models: tuple[ReplayModel, ...]
    filled: frozenset[str]
    foreign: bool = False

    def shift(self, base_ns: int) -> Shift:
        """Return the shift that makes times relative to ``base_ns``. Ranks without a start time are not shifted."""
        moving = [rank for rank, metadata in self.metadata.items() if base_time(metadata)]
        return shift_to(base_ns, self.base_ns, moving)

    def exported(self, base_ns: int) -> ExportedTables:
        """Return the tables, with times relative to ``base_ns``."""
        return ExportedTables(self.tables, self.shift(base_ns), frozenset(self.metadata), self.foreign)


@dataclass(frozen=True)
class Part:
    """The analysis of some ranks: files read, unreadable files, and ``facts`` if any file was readable."""

    inputs: tuple[InputFile, ...]
    unreadable: tuple[InputFile, ...]
    facts: Facts | None


def analyse_batch(batch: Batch, progress: Progress | None = None, *, shared: Shared) -> Part | TaskFailed:
    """Analyse the traces of ``batch`` together. Return TaskFailed if the analysis crashes or runs out of memory."""
    try:
        with TraceStore.for_files([file.place for file in batch.files], replayed_rows) as store:
            store.limit(shared.memory_mb, shared.threads)
            read_files(store, batch.files, progress)
            if not store.inputs:
                return Part((), tuple(store.unreadable), None)
            for reading in shared.readings:
                if _concerns(reading, store.metadata):
                    store.add_reading(reading)
            return _part(store, shared.rules, shared.ranks)
    except OutOfMemoryError as error:
        return TaskFailed(str(error))
    except Exception as error:  # the other ranks still get their report
        if is_interrupt(error):
            raise
        return TaskFailed(f"internal error: {type(error).__name__}: {error}")


def draw_batch(
    batch: Batch, progress: Progress | None = None, *, shared: Shared, wanted: Wanted, base_ns: int
) -> Taken | TaskFailed:
    """Draw the ``wanted`` charts of the ranks in ``batch``, with times relative to ``base_ns``. Return TaskFailed if
    that crashes or runs out of memory."""
    try:
        with TraceStore.for_files([file.place for file in batch.files], replayed_rows) as store:
            store.limit(shared.memory_mb, shared.threads)
            store.base_ns = base_ns
            read_files(store, batch.files, progress)
            from perftool.engine.drawing.pictures import take_pictures

            return take_pictures(store, wanted)
    except OutOfMemoryError as error:
        return TaskFailed(str(error))
    except Exception as error:  # a missing chart must not fail the report
        if is_interrupt(error):
            raise
        return TaskFailed(f"internal error: {type(error).__name__}: {error}")


def read_files(store: TraceStore, files: Sequence[RankFile], progress: Progress | None = None) -> None:
    """Read ``files`` into ``store``, and add unreadable ones to ``store.unreadable``."""
    for number, file in enumerate(files, 1):
        label = file.path if len(files) == 1 else f"rank {number} of {len(files)}"
        kept = None if file.rank is None else partial(_keep, file.rank)
        try:
            read = store.add_trace(file.place, partial(progress, label) if progress else None, kept)
            store.inputs[-1] = replace(
                read, path=file.path if file.folder else read.path, issues=(*read.issues, *file.issues)
            )
        except (InputError, *UNFORESEEN) as error:
            why = str(unexpected_input_error(file.path, error)).replace(file.place, file.path)
            store.unreadable.append(unreadable(file.path, InputError(why)))


def _keep(rank: int, _: int | None) -> int:
    return rank


def _concerns(reading: Reading, own: Mapping[int, Any]) -> bool:
    """Whether ``reading`` belongs to one of these ranks or to the whole run."""
    ranks = reading.reading.ranks
    return len(ranks) != 1 or ranks[0] in own


def _part(store: TraceStore, rules: Sequence[Rule], ranks_of_run: int) -> Part:
    tables = store.export_ranks()
    signs = device_signs(store)
    own = decide_device([signs]).type
    # Even if these ranks show no device, other ranks of the run may show one.
    context = context_of(store, tuple(overview.steps(store)), None if own == "cpu" else own)
    needed = {name for rule in rules for need in rule.needs for name in need.split(" or ")}
    rank_rules = [rule for rule in rules if rule.sql and rule.scope == "rank"]
    answers, models = predicted(store, rank_rules, ask_all(store, rank_rules, context), context, ranks_of_run)
    facts = Facts(
        base_ns=store.base_ns,
        metadata={rank: {key: top[key] for key in _METADATA if key in top} for rank, top in store.metadata.items()},
        tables=tables,
        signs=signs,
        answers=tuple(answers),
        models=models,
        filled=frozenset(name for name in (needed | set(EXPORTED)) if name in catalog() and store.has_rows(name)),
    )
    return Part(tuple(store.inputs_with_issues()[: len(store.inputs)]), tuple(store.unreadable), facts)
