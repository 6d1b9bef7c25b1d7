"""Analyses a run: reads its files into a store, evaluates the rules, and builds the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from perftool.engine.ranks.batch import batches, number_files
from perftool.engine.ranks.joined import analyse, evaluate_joined, join, per_rank, require_one_recording, unpredicted
from perftool.engine.ranks.part import Facts, Part, Shared, draw_batch, read_files
from perftool.engine.ranks.part_file import PartFile, digests, read_part, require_same_rules, together
from perftool.engine.ranks.schedule import IN_PROCESS, InProcess, Progress, Schedule, TaskFailed
from perftool.engine.report import overview
from perftool.engine.report.compose import compose, compose_for_gate, conclude_only, read_texts, require_input
from perftool.engine.report.verdict import verdict
from perftool.engine.report.verdict_input import VerdictInput
from perftool.engine.rules.evaluate import Outcome, evaluate
from perftool.engine.rules.pack import shipped_rules
from perftool.engine.rules.rule_queries import Context
from perftool.errors import InputError, PerfToolError, is_interrupt
from perftool.model.report import Device, NotApplicable, Report
from perftool.model.rule import Rule
from perftool.readers.discover import Inputs, find_inputs
from perftool.readers.files.companions import is_named_like_dump, is_named_like_measurement
from perftool.readers.files.remote import shown_path
from perftool.readers.files.stream import STDIN
from perftool.replay.tables import replayed_rows
from perftool.store.catalog import names_in
from perftool.store.device import decide_device, detect_device
from perftool.store.rank_export import corrupt_as_input_error, spans_ranks
from perftool.store.readings import with_unused_noted
from perftool.store.sandbox.sandbox import Bounds, Result
from perftool.store.trace_store import QUERY_TIME_LIMIT_S, TraceStore

if TYPE_CHECKING:
    from perftool.model.pictures import Pictures

Answer = TypeVar("Answer")
# Builds a report, or a part of it, from a store, rules, the run's device, and a function that evaluates the rules in a
# context.
Answering = Callable[[TraceStore, Sequence[Rule], Device, Callable[[Context], Outcome]], Answer]


class Run:
    """The ranks of one run, read on first use. Results do not depend on the schedule.

    If there are few files, they are all read into one store. Otherwise several tasks each read some of the ranks into
    a separate store and export small tables and findings, which are then merged. Raises InputError if no input can be
    read.
    """

    def __init__(
        self,
        inputs: Inputs,
        rules: Sequence[Rule],
        schedule: Schedule,
        progress: Progress | None,
        open_until: ExitStack,
    ) -> None:
        self._inputs, self._rules, self._schedule, self._progress = inputs, tuple(rules), schedule, progress
        self._open_until = open_until
        self._files = number_files(inputs.traces, inputs.set_aside)
        separate = any(map(per_rank, rules))
        self._batches = batches(self._files, schedule.workers, separate=separate)
        self._texts = read_texts(inputs.texts, inputs.captures, inputs.device)
        self._given = [(path, self._read_part(path)) for path in inputs.parts]
        self._before = together(self._given)

    @cached_property
    def report(self) -> Report:
        """The report: the findings of the rules, and the numbers that every report shows."""
        return replace(self._answered(compose), omitted=self._inputs.omitted)

    @cached_property
    def report_for_gate(self) -> Report:
        """``report``, or only the part of it that a gate needs if there is nothing to advise."""
        return self._answered(compose_for_gate)

    def unrecognised(self, report: Report) -> list[str]:
        """Return the inputs of ``report`` in which nothing was recognised, among those that the user named and those
        named like a rank's dump or like measurements, and Gaudi's metrics. Traces are not included, because ``lint``
        checks them by rank.

        An archive may be listed twice among the inputs, as a trace and as logs; it counts as recognised if either of
        the two was recognised. A part file is unrecognised if it contains only logs in which nothing was recognised.
        """
        blank = [path for path, made in self._given if path in self._inputs.named and made.is_blank]
        inputs = [read for read in report.inputs if read.status != "unreadable"]
        used = {read.path for read in inputs if read.kind == "trace" or read.events}
        named = self._named | {
            read.path
            for read in inputs
            if read.kind == "metrics"
            or is_named_like_measurement(read.path)
            or (is_named_like_dump(read.path) and read.kind != "flight_record")
        }
        empty = named - used
        return [*blank, *(path for path in dict.fromkeys(read.path for read in inputs) if path in empty)]

    @property
    def _named(self) -> set[str]:
        """The inputs that the user named, as reports show them."""
        return {"<stdin>" if path == STDIN else shown_path(path) for path in self._inputs.named}

    @cached_property
    def outcome(self) -> Outcome:
        """The findings of the rules without the other numbers of a report, for callers such as rule tests."""
        return self._answered(conclude_only)

    def _answered(self, answer: Answering[Answer]) -> Answer:
        if self._one_store:
            try:
                store = self.whole
                self._say("analysing")
                return answered_by(answer, store, self._rules)
            except PerfToolError:
                raise
            except Exception as error:
                if is_interrupt(error) or len(self._files) < 2:
                    raise
                # One file may have caused the crash. Analyse each alone, so that the report covers the other ranks.
                self._batches = tuple(single for batch in self._batches for single in batch.split())
        with corrupt_as_input_error() if self._before.parts else nullcontext():
            return self._joined_answer(answer)

    def _joined_answer(self, answer: Answering[Answer]) -> Answer:
        store, facts = self._joined
        self._say("comparing ranks")
        device = decide_device([fact.signs for fact in facts])
        return answer(store, self._rules, device, lambda context: evaluate_joined(store, facts, self._rules, context))

    @property
    def store(self) -> TraceStore:
        """A store with the tables behind ``report``, over all ranks. It has tables of events only if all files were
        read into one store."""
        return self.whole if self._one_store else self._joined[0]

    @cached_property
    def whole(self) -> TraceStore:
        """A store with all tables, over all ranks. Raises InputError if some ranks come from part files."""
        if self._before.parts:
            raise InputError("parts contain tables about whole ranks but no events; pass the traces instead")
        store = self._new_store(self._inputs.traces)
        read_files(store, self._files, self._progress)
        self._add_texts(store)
        require_input(store)
        if not self._inputs.as_one_run:
            require_one_recording(store, "traces")
        return store

    def rank_store(self, rank: int) -> TraceStore:
        """Return a store with all tables, for ``rank`` only. It stays open until the run is closed. Raise InputError if
        the trace cannot be read."""
        if self._one_store and list(self.whole.metadata) == [rank]:
            return self.whole
        return self._read_alone(self._open_until, self._trace_of(rank), rank)

    @contextmanager
    def only_rank(self, rank: int) -> Iterator[TraceStore]:
        """Yield a store with all tables for ``rank``, and possibly for other ranks, that stays open until the block
        ends. Raise InputError if the trace cannot be read."""
        if self._one_store:
            yield self.whole
            return
        trace = self._trace_of(rank)
        with ExitStack() as open_until:
            yield self._read_alone(open_until, trace, rank)

    def _trace_of(self, rank: int) -> str:
        """Return the path of the trace of ``rank``, as given in the inputs. Raise InputError if there is none to
        read.
        """
        read = next((read.path for read in self.store.inputs if read.rank == rank), None)
        # The paths in a part file are those of the machine that wrote it.
        trace = next((trace for trace in self._inputs.traces if shown_path(trace) == read), None)
        if trace is None:
            raise InputError(f"the trace of rank {rank} cannot be read")
        return trace

    def _read_alone(self, open_until: ExitStack, path: str, rank: int) -> TraceStore:
        store = open_until.enter_context(TraceStore.for_files([path], replayed_rows))
        store.base_ns = self.store.base_ns
        store.add_trace(path, None, lambda _: rank)
        self._add_texts(store)
        return store

    def query(self, sql: str, time_limit_s: float = QUERY_TIME_LIMIT_S) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run a SELECT over the tables of all ranks, and return column names and rows. Raise QueryError."""
        result = self.ask(sql, Bounds(time_limit_s))
        return result.columns, result.rows

    def ask(self, sql: str, bounds: Bounds) -> Result:
        """Like ``query``, but within ``bounds``. The result also says whether rows were left out.

        If the SQL uses tables of events, all ranks are read into one store.
        """
        joined = not self._one_store and all(map(spans_ranks, names_in(sql)))
        return (self.store if joined else self.whole).ask(sql, None, bounds)

    @cached_property
    def pictures(self) -> Pictures:
        """The charts of an HTML report. If several tasks read the files, the ranks to draw are read again."""
        from perftool.engine.drawing.pictures import choose_pictures, merge_pictures, pictures_of

        report = self.report
        if self._one_store:
            return pictures_of(self.store, report)
        wanted = choose_pictures(self.store, report)
        shown = [part for batch in self._batches if (part := batch.only(wanted.ranks)).files]
        work = partial(draw_batch, shared=self._shared, wanted=wanted, base_ns=self.store.base_ns)
        drawn = [made for made in self._schedule.run(shown, work, self._progress) if not isinstance(made, TaskFailed)]
        return merge_pictures(self.store, report, drawn)

    @property
    def _one_store(self) -> bool:
        """Whether this process reads all files into one store."""
        return isinstance(self._schedule, InProcess) and len(self._batches) < 2 and not self._before.parts

    @cached_property
    def _joined(self) -> tuple[TraceStore, list[Facts]]:
        parts = self._parts
        store = self._new_store([])
        facts = join(store, parts)
        self._add_texts(store)
        require_input(store)
        if self._before.parts or not self._inputs.as_one_run:
            require_one_recording(store, "parts" if self._before.parts else "traces")
        return store, facts

    @cached_property
    def part(self) -> PartFile:
        """The analysis of the run as a part file, which can be merged with other part files on any machine. Raises
        InputError if two inputs contain the same rank."""
        readings, failed = self._texts
        made = PartFile(tuple(self._made), tuple(readings), tuple(failed), digests(self._rules))
        return together([*self._given, (None, made)])

    @property
    def _parts(self) -> list[Part]:
        """The parts from part files and those analysed now. If there are too many ranks, predictions are removed."""
        return unpredicted(self.part.parts) if self._before.parts else self._made

    @cached_property
    def _made(self) -> list[Part]:
        return analyse(self._batches, self._shared, self._schedule, self._progress)

    def _read_part(self, path: str) -> PartFile:
        made = read_part(path)
        require_same_rules(path, made, self._rules)
        return made

    @cached_property
    def _shared(self) -> Shared:
        memory_mb, threads = self._schedule.share()
        return Shared(self._rules, tuple(self._texts[0]), memory_mb, threads, len(self._files))

    def _new_store(self, paths: Sequence[str]) -> TraceStore:
        return self._open_until.enter_context(TraceStore.for_files(paths, replayed_rows))

    def _add_texts(self, store: TraceStore) -> None:
        readings, failed = self._texts
        store.unreadable += [*self._before.failed, *failed]
        local = set(map(shown_path, self._inputs.texts))
        for reading in with_unused_noted([*self._before.readings, *readings], local):
            store.add_reading(reading)

    def _say(self, stage: str) -> None:
        if self._progress:
            self._progress(stage, 0)


@contextmanager
def analysed(
    inputs: Inputs, rules: Sequence[Rule] = (), schedule: Schedule = IN_PROCESS, progress: Progress | None = None
) -> Iterator[Run]:
    """Yield the run recorded in ``inputs``, to analyse with ``rules``. Its stores stay open until the block ends."""
    with ExitStack() as open_until:
        yield Run(inputs, rules, schedule, progress, open_until)


def analyze(
    paths: Sequence[str],
    rules: Iterable[Rule] | None = None,
    progress: Progress | None = None,
    logs: Sequence[str] = (),
    schedule: Schedule = IN_PROCESS,
    as_one_run: bool = False,
    run: str | None = None,
    device: str | None = None,
) -> Report:
    """Analyse the files ``paths`` (and ``logs``) together, with ``rules`` or the shipped pack.

    ``device`` overrides the device that the traces state. Raise InputError if no file can be read, or if the traces
    belong to several runs and neither ``as_one_run`` is set nor ``run`` selects one. If only some files are unreadable,
    each is reported as a TRC000 finding.
    """
    chosen = list(rules) if rules is not None else shipped_rules()
    inputs = replace(find_inputs(paths, logs, as_one_run=as_one_run, run=run), device=device)
    with analysed(inputs, chosen, schedule, progress) as opened:
        return opened.report


def report_on(store: TraceStore, rules: Sequence[Rule]) -> Report:
    """Build the report on the inputs of ``store``."""
    return answered_by(compose, store, rules)


def answered_by(answer: Answering[Answer], store: TraceStore, rules: Sequence[Rule]) -> Answer:
    """Return the result of ``answer`` for ``rules`` on ``store``, which contains all ranks."""
    crashed = next((rule for rule in rules if rule.code == "TRC001"), None)
    # Detecting the device needs device_ops. Every report also needs ops, so both are built at the same time.
    store.build(["device_ops", "ops"])
    return answer(store, rules, detect_device(store), lambda context: evaluate(store, rules, context, crashed))


def empty_report(rules: Sequence[Rule]) -> Report:
    """Return the report for no input: all numbers are missing, and no rule applies."""
    reasons = tuple(NotApplicable(rule.code, "there is no input") for rule in rules if rule.sql)
    summary = overview.metrics([])
    return Report(
        inputs=(),
        device=Device(None, None, 0),
        summary=summary,
        steps=(),
        idle_causes=(),
        top_device_ops=(),
        top_ops=(),
        engines=(),
        recipes=(),
        fallbacks=(),
        findings=(),
        not_applicable=reasons,
        verdict=verdict(VerdictInput(summary=summary, not_applicable=reasons, rules=rules)),
        rules=tuple(rules),
    )
