"""Converts the contents of logs, metrics and configuration into table rows."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from perftool.errors import InputError
from perftool.model.hpu_ops import is_registered, unsupported
from perftool.model.inputs import OLDER_START, UNREAD, UNUSED, ImportIssue, InputFile
from perftool.model.nodes import GraphNode, NodeRun
from perftool.model.records import CapturedKernel, CompilationRecord, LogReading
from perftool.op_costs.graph_nodes import node_flops
from perftool.readers.files.remote import local_copy, shown_path
from perftool.readers.files.stream import STDIN
from perftool.readers.logs.compilation_choice import chosen_compilations
from perftool.readers.logs.fallback_totals import FallbackTotal, fallback_totals
from perftool.readers.serving.chosen import chosen_result, server_numbers
from perftool.readers.serving.unused import Served, older_logs, unused
from perftool.units import NS_PER_US


@dataclass(frozen=True)
class Reading:
    """A text input and its contents."""

    path: str
    size: int
    reading: LogReading

    def as_input(self) -> InputFile:
        """Return the entry of this file in a report's list of inputs."""
        reading = self.reading
        ranks = reading.ranks
        return InputFile(
            path=self.path,
            kind=reading.kind or "runtime_log",
            rank=ranks[0] if len(ranks) == 1 else None,
            bytes=self.size,
            events=reading.records,
            status="repaired"
            if any(issue.kind not in (UNREAD, UNUSED, OLDER_START) for issue in reading.issues)
            else "ok",
            issues=reading.issues,
        )


def read_text(path: str) -> Reading:
    """Read a log, a metrics file or a configuration. Raise InputError if it cannot be read."""
    # Imported here, because traces do not need the text readers and their pattern tables.
    from perftool.readers import text_input

    shown = "<stdin>" if path == STDIN else shown_path(path)
    size = 0 if path == STDIN or not os.path.exists(path) else os.path.getsize(path)
    with local_copy(path) as place:
        return Reading(shown, size, text_input.read(place))


def with_one_dump_per_rank(readings: Sequence[Reading]) -> list[Reading]:
    """Remove copies of flight-recorder dumps from ``readings``. Raise InputError if a rank has two different dumps,
    because each shows its progress in a different hang."""
    first: dict[int, Reading] = {}
    kept = []
    for one in readings:
        ranks = one.reading.ranks if one.reading.kind == "flight_record" else ()
        other = next((first[rank] for rank in ranks if rank in first), None)
        if other is None:
            first |= dict.fromkeys(ranks, one)
            kept.append(one)
        elif one.reading != other.reading:
            raise InputError(
                f"{other.path} and {one.path} are both dumps of rank {ranks[0]}; name the dumps of one hang, or leave "
                "out the others with --exclude"
            )
    return kept


def with_unused_noted(readings: Sequence[Reading], local: Collection[str]) -> list[Reading]:
    """Note in ``readings`` which logs, benchmark results and metrics pages are not used, and whether all requests of
    the chosen result failed. Remove the contents of logs that are not used.

    ``local`` are the paths of files on this machine.
    """
    older = older_logs([(one.path, one.reading) for one in readings])
    readings = [_without_contents(one, why) if why else one for one, why in zip(readings, older, strict=True)]
    notes = unused([Served(one.path, one.reading, _saved_ns(one.path, local)) for one in readings])
    client = chosen_result([result for one in readings for result in one.reading.results])
    noted = []
    for one, found in zip(readings, notes, strict=True):
        issues = [ImportIssue(UNUSED, 1, why) for why in found]
        if client and not client.requests and any(result is client for result in one.reading.results):
            issues.append(ImportIssue("no successful request", 1, "no request of the benchmark succeeded"))
        noted.append(replace(one, reading=replace(one.reading, issues=(*one.reading.issues, *issues))))
    return noted


def _without_contents(one: Reading, why: str) -> Reading:
    issues = (*one.reading.issues, ImportIssue(UNUSED, 1, why))
    return replace(one, reading=LogReading(issues=issues, kind=one.reading.kind))


def _saved_ns(path: str, local: Collection[str]) -> int | None:
    """Return when a file was last changed, in ns since 1970, or None if that is unknown."""
    return os.stat(path).st_mtime_ns if path in local and os.path.isfile(path) else None


def with_rows_limited(readings: Sequence[Reading]) -> list[Reading]:
    """Limit the total number of rows that the compilations in ``readings`` need: reduce counts above the limit, and
    report this."""
    room, kept = _MOST_EXTRA_ROWS, []
    for part in readings:
        records, lost = [], 0
        for record in part.reading.compilations:
            count = min(record.count, 1 + room)
            room -= max(count - 1, 0)
            lost += record.count - count
            records.append(record if count == record.count else _with_count(record, count))
        kept.append(replace(part, reading=_with_fewer(part.reading, records, lost)) if lost else part)
    return kept


def _with_count(record: CompilationRecord, count: int) -> CompilationRecord:
    return replace(record, count=count, dur_ns=record.dur_ns and record.dur_ns // record.count * count)


def _with_fewer(reading: LogReading, records: Sequence[CompilationRecord], lost: int) -> LogReading:
    text = f"{lost:,} compilations are left out: lines that report several add at most {_MOST_EXTRA_ROWS:,} rows"
    issue = ImportIssue("too many compilations", min(lost, _MOST_COUNTED), text)
    return replace(reading, compilations=tuple(records), issues=(*reading.issues, issue))


def reading_tables(readings: Sequence[Reading]) -> dict[str, list[tuple[Any, ...]]]:
    """Return the table rows derived from ``readings`` (as returned by ``with_rows_limited``), by table."""
    parts = [part.reading for part in readings]
    totals = fallback_totals(parts)
    return {
        "_log_fallbacks": [
            (t.op, t.base, _dtypes(t), t.count, "+".join(t.origins), is_registered(t.op)) for t in totals
        ],
        "unsupported_dtypes": _missing_dtypes(totals),
        # Inputs that list all fallbacks. If one was read and lists none, no fallback occurred.
        "_log_fallback_sources": [(r.path,) for r in readings if _lists_fallbacks(r.reading)],
        "_captured": captured_rows([kernel for part in parts for kernel in part.captured]),
        "_log_compilations": [
            (c.rank, c.step, c.recipe, c.reason, "metrics" if c.source == "metrics" else "log", share)
            for c in chosen_compilations(parts)
            for share in [c.dur_ns and c.dur_ns // c.count]
            for _ in range(c.count)
        ],
        "config": [(e.source, e.key, e.value, e.rank, r.path) for r in readings for e in r.reading.config],
        "log_events": [
            (e.kind, e.name, e.count, e.value, e.limit, e.unit, e.rank, r.path, e.line)
            for r in readings
            for e in r.reading.events
        ],
        "flight_groups": [
            (g.rank, g.group, g.description, list(g.members) or None, g.called, g.completed, r.path)
            for r in readings
            for g in r.reading.flight_groups
        ],
        "flight_entries": [
            (e.rank, e.group, e.number, e.name, e.state, e.sizes, e.created_ns, e.place, e.peer)
            for part in parts
            for e in part.flight
        ],
        **_node_tables(readings),
        **_serving_tables(readings),
        "metrics": [
            (s.metric, s.ordinal, v.key, v.name, v.total, v.increment, v.unit, s.trigger, s.rank, r.path)
            for r in readings
            for s in r.reading.metrics
            for v in s.values
        ],
    }


def _serving_tables(readings: Sequence[Reading]) -> dict[str, list[tuple[Any, ...]]]:
    parts = [part.reading for part in readings]
    client = chosen_result([one for part in parts for one in part.results])
    server = server_numbers(page for part in parts for page in part.pages)
    return {
        "buckets": [
            (b.rank, b.phase, b.batch, b.query, b.blocks, b.origin, part.path, b.line)
            for part in readings
            for b in part.reading.buckets
        ],
        "serving_intervals": [
            (i.engine, i.time_ns, i.since_ns, i.prompt_tokens_per_s, i.generation_tokens_per_s, i.running, i.waiting,
             i.cache_ratio, i.prefix_hit_ratio, i.preemptions, i.drafted, i.accepted, i.acceptance_length, i.process,
             part.path, i.line)
            for part in readings
            for i in part.reading.intervals
        ],
        "logged_iterations": [
            (i.engine, i.iteration, i.prompts, i.prompt_tokens, i.generating, i.generated_tokens, i.dur_ns, part.path,
             i.line)
            for part in readings
            for i in part.reading.iterations
        ],
        "serving_numbers": [
            *(("client", one.name, one.statistic, one.value) for one in (client.numbers if client else ())),
            *(("server", one.name, one.statistic, one.value) for one in server),
        ],
    }  # fmt: skip


def captured_rows(kernels: Sequence[CapturedKernel]) -> list[tuple[Any, ...]]:
    """Return the rows of ``kernels``, each with its number among the kernels of the same name, and with the count of
    those kernels."""
    times, seen = Counter(one.kernel for one in kernels), Counter[str]()
    rows = []
    for one in kernels:
        seen[one.kernel] += 1
        call = (one.op, one.op_name, one.input_dims, one.input_types, one.concrete_inputs)
        rows.append((one.kernel, seen[one.kernel], times[one.kernel], *call))
    return rows


def _node_tables(readings: Sequence[Reading]) -> dict[str, list[tuple[Any, ...]]]:
    return {
        "analyzed_nodes": [_node_run(run) for part in readings for run in part.reading.nodes],
        "graph_nodes": [_graph_node(node) for part in readings for node in part.reading.graph_nodes],
        "compiler_advice": [
            (a.rank, a.priority, a.check, a.tensor, a.node, a.size_bytes, a.fcd_bytes, a.reads, a.memory, a.text,
             a.count, part.path, a.line)
            for part in readings
            for a in part.reading.advice
        ],
    }  # fmt: skip


def _node_run(run: NodeRun) -> tuple[Any, ...]:
    return (
        run.rank, run.node, run.node_id, run.engine, run.op, run.dtype, run.run, run.ts_ns, run.dur_ns,
        run.active_ns, run.exposed_ns, run.activations, run.lanes, run.min_engine_ns, run.max_engine_ns,
        run.avg_engine_ns, run.input_shapes, run.output_shapes, run.expected_ns, run.utilisation, run.strategy,
    )  # fmt: skip


def _graph_node(node: GraphNode) -> tuple[Any, ...]:
    operands = (*node.inputs, *node.outputs)
    sizes = [prod(one.shape) * one.bits // 8 for one in operands if one.bits and one.memory != _ON_CHIP]
    known = bool(operands) and all(one.bits for one in operands)
    dtype = next((one.dtype for one in (*node.outputs, *node.inputs) if one.dtype), None)
    inputs, outputs = ([one.shape for one in side] for side in (node.inputs, node.outputs))
    flops = node_flops(node.guid, inputs, outputs)
    moved = sum(sizes) if known else None
    return (
        node.rank, node.recipe, node.recipe_name, node.node, node.node_id, node.engine, node.guid, dtype,
        str([list(shape) for shape in inputs]), str([list(shape) for shape in outputs]),
        flops if flops is not None and flops < _MOST_COUNTED else None,
        moved if moved is not None and moved < _MOST_COUNTED else None,
        node.expected_cycles, node.expected_dma_us and round(node.expected_dma_us * NS_PER_US), node.utilisation,
        node.strategy, ", ".join(dict.fromkeys(node.fused_ops or node.origins)) or None,
    )  # fmt: skip


# Tensors in on-chip memory cause no memory traffic.
_ON_CHIP = "SRAM"
_MOST_COUNTED = 2**62


# A record that counts many compilations becomes that many rows. There are at most this many rows in addition to one row
# per record.
_MOST_EXTRA_ROWS = 100_000


def _dtypes(total: FallbackTotal) -> str | None:
    more = [f"and {total.more_dtypes:,} more"] if total.more_dtypes else []
    return "; ".join([*(", ".join(dtypes) for dtypes in total.dtypes), *more]) or None


def _missing_dtypes(totals: Sequence[FallbackTotal]) -> list[tuple[Any, ...]]:
    rows = []
    for total in totals:
        seen = frozenset(dtype for combination in total.dtypes for dtype in combination)
        missing, supported = unsupported(total.op, total.base, seen)
        if missing:
            rows.append((total.op, total.base, ", ".join(sorted(missing)), ", ".join(sorted(supported)) or None))
    return rows


def _lists_fallbacks(reading: LogReading) -> bool:
    return bool(reading.fallbacks) or any(snapshot.metric == "cpu_fallback" for snapshot in reading.metrics)
