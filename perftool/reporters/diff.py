"""The comparison of two runs: as text, as Markdown for a pull request, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from perftool import __version__
from perftool.model.cut_text import cut_text
from perftool.model.diff import Comparison, FusedSide, OpChange, RateChange, RunSide
from perftool.model.efficiency import OpRate
from perftool.model.metrics import metric_kinds
from perftool.model.report import Finding
from perftool.model.words import of_steps
from perftool.reporters.efficiency import rate_text, shapes_text, share_text
from perftool.reporters.escape import markdown_cell, one_line
from perftool.reporters.json import dump
from perftool.reporters.labels import format_value
from perftool.reporters.modules import path_tail
from perftool.units import format_alike, format_ns, format_ratio, quantity

VERSION = 1
METHOD = "percentile bootstrap of the median, 2000 resamples"
_MOST = 10
_LONGEST_NAME = 80
_LONGEST_PLACE = 60
_MODULES = "Modules, without submodules"
_LONGEST_PART, _MOST_PARTS = 40, 4


def render_diff_text(result: Comparison) -> bytes:
    """Render the comparison as text: caveats, the verdict, then the changes."""
    lines = [*_caveats(result), *([text, ""] if (text := headline(result)) else [])]
    lines += [f"  {part:14}{before:>12} -> {after:>10}  {delta:>12}" for part, before, after, delta in _parts(result)]
    if result.served:
        lines += [
            "",
            "Server",
            *(f"  {name:30}{one:>12} -> {other:>10}  {by:>9}" for name, one, other, by in _serving_rows(result)),
        ]
    for title, findings in _findings(result):
        if findings:
            lines += ["", title, *(f"  {_finding(finding)}" for finding in findings)]
    for title, changes in (("Device ops", result.device_ops), ("Host ops", result.ops)):
        if changes:
            lines += ["", f"{title} (per {_word(result)})"]
            lines += [f"  {change.kind:9} {_delta(change.delta_ns):>12}  {_name(change)}" for change in changes[:_MOST]]
            lines += _left_out(changes)
    if result.modules:
        lines += ["", f"{_MODULES} (per {_word(result)})"]
        lines += [f"  {_delta(change.delta_ns):>12}  {_place(change)}" for change in result.modules[:_MOST]]
        lines += _left_out(result.modules)
    if result.rates:
        lines += ["", f"Ops by shapes, on {_device(result.base)} and on {_device(result.new)}"]
        lines += [f"  {text}" for text in _combined_lines(result)]
        lines += [f"  {name}  {one} -> {other}  {times}".rstrip() for name, one, other, times in _rates(result)]
        lines += _left_out(result.rates)
    if result.fusions:
        lines += ["", f"Fused on one side only (per {_word(result)})", *(f"  {text}" for text in _fusions(result))]
    return "".join(f"{line.rstrip()}\n" for line in lines).lstrip("\n").encode("utf-8", "replace")


def render_diff_markdown(result: Comparison) -> bytes:
    """Render the comparison as a pull request comment."""
    lines = ["### habana_perf_tool", "", *(part for text in _caveats(result) for part in (markdown_cell(text), ""))]
    lines += [markdown_cell(headline(result)), ""]
    lines += [f"| part of the {_word(result)} | base | new | change |", "|---|--:|--:|--:|"]
    lines += [f"| {' | '.join(map(markdown_cell, row))} |" for row in _parts(result)]
    if result.served:
        lines += ["", "| server | base | new | change |", "|---|--:|--:|--:|"]
        lines += [f"| {' | '.join(map(markdown_cell, row))} |" for row in _serving_rows(result)]
    for title, findings in _findings(result):
        if findings:
            lines += [
                "",
                f"**{title}**",
                "",
                *(f"- {markdown_cell(_finding(finding))}" for finding in findings),
            ]
    for title, changes in (("Device op", result.device_ops), ("Host op", result.ops)):
        if changes:
            lines += ["", f"| {title} | | change per {_word(result)} |", "|---|---|--:|"]
            rows = ((_name(change), change.kind, _delta(change.delta_ns)) for change in changes[:_MOST])
            lines += [f"| {' | '.join(map(markdown_cell, row))} |" for row in rows]
    if result.modules:
        lines += ["", f"| {_MODULES} | change per {_word(result)} |", "|---|--:|"]
        changed = ((_place(change), _delta(change.delta_ns)) for change in result.modules[:_MOST])
        lines += [f"| {' | '.join(map(markdown_cell, row))} |" for row in changed]
    if result.rates:
        lines += ["", *(f"{markdown_cell(text)}\n" for text in _combined_lines(result))]
        lines += ["| op and shapes | base | new | a call takes |", "|---|---|---|---|"]
        lines += [f"| {' | '.join(map(markdown_cell, row))} |" for row in _rates(result)]
    if result.fusions:
        lines += ["", f"**Fused on one side only (per {_word(result)})**", ""]
        lines += [f"- {markdown_cell(text)}" for text in _fusions(result)]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def render_diff_json(result: Comparison) -> bytes:
    """Render the whole comparison as one JSON object, with times in ns."""
    data = {
        "version": VERSION,
        "tool": {"name": "habana_perf_tool", "version": __version__},
        "base": _side(result.base),
        "new": _side(result.new),
        "verdict": result.verdict,
        "reason": result.reason,
        "method": METHOD,
        "interval": None if result.interval is None else asdict(result.interval),
        "breakdown": [asdict(part) for part in result.parts],
        "device_ops": [_change(change) for change in result.device_ops],
        "ops": [_change(change) for change in result.ops],
        "modules": [_change(change) for change in result.modules],
        "rates": [
            {**asdict(change), "factor": change.factor, "by_peaks": change.by_peaks, "by_kernels": change.by_kernels}
            for change in result.rates
        ],
        "fusions": [asdict(change) for change in result.fusions],
        "served": [asdict(change) for change in result.served],
        "new_findings": [_plain(finding) for finding in result.new_findings],
        "fixed_findings": [_plain(finding) for finding in result.fixed_findings],
        "crossed_findings": [_plain(finding) for finding in result.crossed_findings],
        "differences": list(result.differences),
    }
    return dump(data, indent=True)


def _caveats(result: Comparison) -> list[str]:
    """Return a sentence for each incomplete run, and one about different settings."""
    lost = [
        f"The {which} run is incomplete: {one_line('; '.join(side.lost))}."
        for which, side in (("base", result.base), ("new", result.new))
        if side.lost
    ]
    caveats = [f"These runs differ in more than the code: {one_line('; '.join(result.differences))}."]
    return lost + (caveats if result.differences else [])


def _findings(result: Comparison) -> tuple[tuple[str, Sequence[Finding]], ...]:
    return (
        ("New findings", result.new_findings),
        ("Fixed findings", result.fixed_findings),
        ("Near their threshold: found on one side only", result.crossed_findings),
    )


def _word(result: Comparison) -> str:
    """Return the word for a step, such as ``iteration``; ``step`` if the runs use different words."""
    words = {result.base.step_word, result.new.step_word}
    return words.pop() if len(words) == 1 else "step"


def headline(result: Comparison) -> str:
    """State the step times, their change with its interval, and the verdict in one sentence."""
    before, after = _median(result.base), _median(result.new)
    if before is None or after is None:
        # A serving engine without steps is compared by its metrics.
        return "" if result.served else "Step times cannot be compared: one side has no complete step."
    times = f"Median {_word(result)} {format_ns(before)} -> {format_ns(after)}"
    interval = result.interval
    if interval is None:
        change = f"{_signed(after / before - 1)}" if before else "change unknown"
        return f"{times} ({change}); significance cannot be judged: {of_steps(result.reason or '', _word(result))}."
    bounds = f"{_signed(interval.low)} to {_signed(interval.high)}"
    share = f"{format_ratio(interval.confidence)} interval {bounds}"
    return f"{times} ({_signed(interval.change)}, {share}): {result.verdict}."


def _serving_rows(result: Comparison) -> Iterable[tuple[str, str, str, str]]:
    kinds = {kind.name: kind for kind in metric_kinds()}
    for change in result.served:
        kind = kinds[change.name]
        one, other = (format_value(value, kind.unit) for value in (change.base, change.new))
        yield kind.label or kind.name, one, other, "" if change.ratio is None else _signed(change.ratio)


def _median(side: RunSide) -> float | None:
    return median(side.step_ns) if side.step_ns else None


def _signed(ratio: float) -> str:
    return ("+" if ratio >= 0 else "") + format_ratio(ratio)


def _delta(ns: float) -> str:
    return ("+" if ns >= 0 else "") + format_ns(ns)


def _parts(result: Comparison) -> Iterable[tuple[str, str, str, str]]:
    moved = sorted(result.parts, key=lambda part: (-abs(part.new_ns - part.base_ns), part.part))
    for part in moved:
        if part.base_ns or part.new_ns:
            delta = part.new_ns - part.base_ns
            before, after, change = format_alike(part.base_ns, part.new_ns, delta)
            yield part.part, before, after, f"{'+' if delta >= 0 else ''}{change}"


def _name(change: OpChange) -> str:
    return cut_text(one_line(change.name), _LONGEST_NAME)


def _place(change: OpChange) -> str:
    """Return the module's class with as many enclosing classes as fit, and its time on both sides."""
    times = " -> ".join(format_ns(total.ns) if total else "none" for total in (change.base, change.new))
    return f"{path_tail(one_line(change.name), _LONGEST_PLACE)}  {times}"


def _device(side: RunSide) -> str:
    return one_line(side.device or "an unnamed device")


def _rates(result: Comparison) -> Iterable[tuple[str, str, str, str]]:
    """Yield for each op its name and shapes, its rates in both runs, and how the time of a call changed."""
    for change in result.rates[:_MOST]:
        shapes = shapes_text(change.base) if change.shapes else "all shapes"
        times = "" if change.factor is None else f"x{change.factor:.2f}{_split(change, result)}"
        yield one_line(f"{change.name} {shapes}")[:_LONGEST_NAME], _reached(change.base), _reached(change.new), times


def _split(change: RateChange, result: Comparison) -> str:
    """Split the change into factors due to the devices' peaks and to their kernels. Return "" if both sides ran on the
    same device."""
    if not _other_device(result) or change.by_peaks is None:
        return ""
    return f" (peaks x{change.by_peaks:.2f}, kernels x{change.by_kernels:.2f})"


def _other_device(result: Comparison) -> bool:
    return bool(result.base.device and result.new.device and result.base.device != result.new.device)


def _combined_lines(result: Comparison) -> list[str]:
    """Compare the time of all ops that have the same shapes and known peaks on two different devices with the time that
    the peaks predict."""
    known = [change for change in result.rates if change.factor is not None and change.by_peaks is not None]
    if not known or not _other_device(result):
        return []
    steps = max(len(result.base.step_ns), 1)
    before, peaks, after = (
        sum(change.base.kernel_ns * factor(change) for change in known) / steps
        for factor in (lambda change: 1.0, lambda change: change.by_peaks, lambda change: change.factor)
    )
    side = result.new if after > peaks else result.base
    each = of_steps("a step", _word(result))
    several = len(known) > 1
    ops = f"{len(known)} op{'s' if several else ''} with the same shapes take{'' if several else 's'}"
    return [
        f"Weighted by the calls of the base run, {ops} {format_ns(before)} -> {format_ns(after)} {each}. The devices' "
        f"peaks alone predict {format_ns(peaks)}; kernels on {_device(side)} stay further below its peak, which "
        "explains the rest."
    ]


def _fusions(result: Comparison) -> Iterable[str]:
    for change in result.fusions[:_MOST]:
        one, other = (result.base, result.new) if change.on_base else (result.new, result.base)
        yield one_line(
            f"{change.work}: {_some(change.fused)} in {one.name}, {_some(change.apart)} in {other.name}: "
            f"{change.closes}"
        )


def _some(side: FusedSide) -> str:
    """List the first few names, shortened, with their time and calls."""
    names = side.names
    shown = [cut_text(name, _LONGEST_PART) for name in names[:_MOST_PARTS]]
    more = len(names) - len(shown)
    named = ", ".join(shown) + (f" and {more} more" if more else "")
    return f"{named} ({format_ns(side.ns)}, {quantity(round(side.calls), 'call', 'calls')})"


def _reached(op: OpRate) -> str:
    """Return the mean time of a call, its rate, and its share of the device's peak."""
    share = "" if op.roofline_ratio is None else share_text(op.roofline_ratio, " of peak")
    return ", ".join(filter(None, (format_ns(op.kernel_ns / max(op.calls, 1)), rate_text(op), share)))


def _left_out(changes: Sequence[object]) -> list[str]:
    return [f"  and {len(changes) - _MOST} more"] if len(changes) > _MOST else []


def _finding(finding: Finding) -> str:
    return one_line(f"{finding.code} {finding.name} [{finding.severity}] {finding.message}")


def _side(side: RunSide) -> dict[str, Any]:
    return {
        "name": side.name, "steps": len(side.step_ns), "median_step_ns": _median(side), "lost": list(side.lost),
    }  # fmt: skip


def _change(change: OpChange) -> dict[str, Any]:
    return {**asdict(change), "delta_ns": change.delta_ns}


def _plain(finding: Finding) -> dict[str, Any]:
    keys = ("code", "name", "severity", "subject", "message", "rank")
    return {key: getattr(finding, key) for key in keys}
