"""Renders the prediction of ``whatif`` as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from perftool.model.cut_text import cut_text
from perftool.model.what_if import FixBound, Path, WhatIf
from perftool.model.words import kind_label, of_steps
from perftool.reporters.escape import one_line
from perftool.reporters.json import TOOL, VERSION, dump
from perftool.reporters.labels import bounds_text
from perftool.reporters.terminal.tables import print_table, table_of
from perftool.units import format_count, format_ns, format_ratio

_LONGEST_NAME = 60


def render_what_if_json(result: WhatIf) -> bytes:
    """Render ``result`` as one JSON object, with times in ns and null for unknown values."""
    return dump(
        {
            "version": VERSION,
            "tool": TOOL,
            "rank": result.rank,
            "ranks": result.ranks,
            "steps": result.steps,
            "recorded": _step(result.mean_step_ns),
            "measured": _step(result.measured_step_ns),
            "replayed": _step(result.replayed_step_ns),
            "predicted": _step(result.predicted_step_ns),
            "error_ratio": result.error_ratio,
            "fixes": list(result.fixes),
            "changes": [asdict(change) for change in result.changes],
            "critical_path": {"before": _path(result.before), "after": _path(result.after)},
            "why_not": result.why_not,
            "bounds": [asdict(bound) for bound in result.bounds],
        },
        indent=True,
    )


def _step(ns: int | None) -> dict[str, int] | None:
    return None if ns is None else {"step_ns": ns}


def _path(path: Path | None) -> dict[str, Any] | None:
    return None if path is None else asdict(path)


def print_what_if(result: WhatIf, console: Console) -> None:
    """Print the measured, replayed and predicted step, the changes, and what bounds the step before and after them."""
    measured, replayed, predicted = result.measured_step_ns, result.replayed_step_ns, result.predicted_step_ns
    word = result.step_word
    steps = f"{result.steps} {word}{'' if result.steps == 1 else 's'}"
    each = of_steps("a step", word)
    if measured is not None and replayed is not None:
        whose = f"{result.ranks} ranks together" if result.rank is None else f"rank {result.rank}"
        single_note = "; others may differ" if result.rank is None and result.steps == 1 else ""
        mean = " on average" if result.steps > 1 else ""
        if result.mean_step_ns is not None:
            recorded = format_ns(result.mean_step_ns)
            console.print(f"recorded   {recorded} {each} on average; only typical, shorter {word}s are replayed")
        console.print(f"measured   {format_ns(measured)} {each}{mean}, {whose}, {steps}{single_note}")
        off = f"{format_ratio(abs(result.error_ratio or 0))} off"
        console.print(f"replayed   {format_ns(replayed)}, {off}")
    if predicted is not None and replayed and (result.changes or not result.bounds):
        less = replayed - predicted
        sense = "less" if less >= 0 else "more"
        console.print(
            f"predicted  {format_ns(predicted)}, {format_ns(abs(less))} {sense} ({format_ratio(abs(less) / replayed)})"
        )
    for bound in result.bounds:
        console.print(f"{bound.code:9}  {of_steps(_bound_text(bound, bound.code in result.fixes), word)}")
    if result.changes:
        console.print()
        table = table_of("change", "tasks", f"{each} with only this change")
        for change in result.changes:
            name = change.what if change.kind == "fix" else f"{change.kind} {change.what}"
            table.add_row(Text(one_line(name)), format_count(change.tasks), format_ns(change.step_ns))
        print_table(table, console)
    if result.before is not None:
        _print_path("recorded", result.before, word, console)
    if result.after is not None and result.changes:
        _print_path("predicted", result.after, word, console)


def _bound_text(bound: FixBound, is_replayed: bool) -> str:
    if bound.ns_per_step is None:
        return "nothing can be modelled: the finding has no cost per step"
    why = "most of it is outside the replay" if is_replayed else "its fix cannot be replayed"
    return f"up to {format_ns(bound.ns_per_step)} less (a bound: {why})"


def _print_path(which: str, path: Path, word: str, console: Console) -> None:
    console.print()
    console.print(Text(f"What bounds the {which} {word}: {bounds_text(path.bounds)}"))
    table = table_of("", of_steps("a step", word), "stretches")
    for task in path.tasks:
        name = one_line(task.name or ("code outside ops" if task.kind == "host" else kind_label(task.kind)))
        table.add_row(Text(cut_text(name, _LONGEST_NAME)), format_ns(task.ns_per_step), format_count(task.stretches))
    print_table(table, console)
