"""Sentences about the work of the device: how busy it is, how close to its peak, and its largest ops and modules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from perftool.engine.report.causes import LARGE, cut_name
from perftool.engine.report.verdict_input import VerdictInput
from perftool.model.memory import MemoryUse
from perftool.model.modules import INSIDE, NO_MODULE, ModuleTime, Part
from perftool.model.report import Metric
from perftool.model.words import kind_label
from perftool.units import format_bytes, format_ns, format_ratio

# Below this idle share, the device is practically never idle, so causes of idle time are not named.
_NOTEWORTHY_IDLE = 0.02
# Below this idle share, any gain must come from the kernels of the device.
_WELL_FED = 0.10
# Below this idle share, the step time depends mostly on the kernels.
_BUSY = 0.20
# Kernels that reach this share of their roofline leave little to gain.
_NEAR_BEST = 0.80
# A part with a larger share is treated as all of the work.
_NEARLY_ALL = 0.9
# Two sums of shares count as equal if they differ by less than this factor.
_ALL = 1.001
# Parts with a smaller share of the work are not named.
_WEIGHTY = 0.05
# The largest op is not mentioned if its share is smaller than this.
_LARGEST = 0.1
_MOST_PARTS = 3
# Work outside of modules is mentioned if it takes this share.
_OUTSIDE = 0.25
# The rule that reports a recording without work.
_EMPTY = "TRC112"
# Modules of torch.nn that only run other modules.
_CONTAINERS = {"Sequential", "ModuleList", "ModuleDict"}
# PyTorch modules that wrap the user's module.
_WRAPPERS = {"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "OptimizedModule"}


def limit_sentence(run: VerdictInput, most_idle: float = _WELL_FED) -> str:
    """Return a sentence about how busy the device is, and how close it is to its peak. It is empty if the device is
    idle for ``most_idle`` of the time or more, if its idle time is unknown, or if a finding is an error.
    """
    if not run.inputs or any(found.severity == "error" for found in run.findings):
        return ""
    idle = run.summary["device_idle_ratio"].value
    if idle is None or idle >= most_idle or not run.device_ops:
        return ""
    top = run.device_ops[0]
    shown = "time that the trace shows" if run.summary["device_unknown_ratio"].value else "time"
    share = f" ({format_ratio(top.share)} in {short_name(top.name)})"
    reached = f"; its matmuls reach {format_ratio(run.reached)} of their roofline" if run.reached else ""
    best = run.summary["roofline_ratio"].value
    whose = "the machine's" if run.device == "cpu" else "its"
    only = f", but at only {format_ratio(best)} of {whose} peak" if best and best < _NEAR_BEST else ""
    only += _modelled(run) if only else ""
    if run.device == "cpu":
        # The recording does not show the number of busy cores.
        return f"Ops are computing for {format_ratio(1 - idle)} of the {shown}{only}."
    if _mostly_communicates(run):
        return f"Communication is the limit: the device is busy {format_ratio(1 - idle)} of the {shown}{share}."
    return f"The device is the limit: it is busy {format_ratio(1 - idle)} of the {shown}{share}{only}{reached}."


def _modelled(run: VerdictInput) -> str:
    """Return a clause about the share of the work whose distance from the peak is known. The result is empty if this is
    nearly all of it.
    """
    known, idle = run.summary["roofline_ratio"].denominator, run.summary["device_idle_ratio"]
    work = (idle.denominator or 0) - (idle.numerator or 0)
    if known is None or known >= _NEARLY_ALL * work:
        return ""
    return f" (known for {format_ratio(known / work)} of the work)"


def _mostly_communicates(run: VerdictInput) -> bool:
    """Whether collectives run alone for more than half of the steps' time."""
    parts = [step.parts_ns for step in run.steps if not step.partial]
    return 2 * sum(each["communication"] for each in parts) > sum(sum(each.values()) for each in parts) > 0


def detail_sentence(run: VerdictInput) -> str:
    """Return a sentence about how long the device computes and why it is idle, or about why no times are known."""
    inputs, summary, idle_causes = run.inputs, run.summary, run.idle_causes
    idle = summary["device_idle_ratio"].value
    if not inputs:
        return ""
    if summary["window_ms"].value is None and any(read.kind == "trace" for read in inputs):
        if any(found.code == _EMPTY for found in run.findings):
            return ""
        if is_memory_alone(run):
            return _memory_sentence(run.memory)
        return "No event in the trace shows work, so no times are known."
    if summary["window_ms"].value is None:
        if summary["decode_time_ms"].value is not None:
            return "No trace was read: this report is based on the other files."
        served = any(metric.value is not None and metric.unit == "per_s" for metric in summary.values())
        missing = "no iteration times" if served else "no times"
        known = "only node times" if any(read.kind == "nodes" for read in inputs) else missing
        return f"No trace was read, so {known} are known: this report is based on the other files."
    if summary["device_unknown_ratio"].value == 1:
        return ""
    if idle is None:
        # A run on the CPU has no device that could be idle.
        return "" if run.device == "cpu" else "The input shows no device work, so the device's busy time is unknown."
    unknown = f" ({what})" if (what := _unknown(summary)) else ""
    if idle < _WELL_FED:
        best = _best(run)
        if best or idle < _NOTEWORTHY_IDLE or not idle_causes:
            works = "The CPU is computing for" if run.device == "cpu" else "The device is busy"
            return f"{works} {format_ratio(1 - idle)} of the time{unknown}{best}."
    main = idle_causes[0]
    largest = f"; the largest part: {kind_label(main.name)} ({format_ratio(main.share)})"
    stands = "Nothing is computed for" if run.device == "cpu" else "The device is idle"
    return f"{stands} {format_ratio(idle)} of the time{'' if main.name == 'unknown' else largest}{unknown}."


def busy_detail(run: VerdictInput) -> str:
    """Return a sentence about the time in kernels that only read and write memory (if long), and about how long the
    state of the device is unknown."""
    return sentence("; ".join(filter(None, (_passes(run), _unknown(run.summary)))))


def work_sentences(run: VerdictInput) -> tuple[str, ...]:
    """Return sentences about the work of the device by op and by module, and about possible gains. The result is empty
    if the device is often idle."""
    idle = run.summary["device_idle_ratio"].value
    if not run.left or idle is None or idle >= _BUSY:
        return ()
    enclosing = f"{short_name(run.device_ops[0].name)} runs {run.on_cpu.enclosing}." if run.on_cpu.enclosing else ""
    return run.left.sentences((enclosing, named_parts(run)))


def largest_op(run: VerdictInput) -> tuple[str, ...]:
    """Return two sentences for a run on the CPU: about the op that takes the most time and how close it is to the
    machine's peak (unless all ops are small), and about the parts of the work. Other devices have no such sentences."""
    if run.device != "cpu" or not run.device_ops:
        return ()
    top = run.device_ops[0]
    if top.share < _LARGEST:
        return (named_parts(run),)
    reached = ""
    if run.top_reached is not None:
        reached = f", {_reached(run.top_reached)}"
    elif run.on_cpu.repeated is not None:
        # On an overloaded machine, only the calls after the recording show how fast the op is.
        reached = f" ({_reached(run.on_cpu.repeated)}, when repeated after the recording)"
    enclosing = f", {run.on_cpu.enclosing}" if run.on_cpu.enclosing else ""
    most = f"{short_name(top.name)} takes the most time: {format_ratio(top.share)}{reached}{enclosing}."
    return most, named_parts(run)


def _reached(ratio: float) -> str:
    """Return a clause about the share of its peak that an op reaches. The peak is measured with matmuls, and
    convolutions may be a little faster."""
    return f"at {format_ratio(ratio)} of the machine's peak" if ratio <= 1 else "at the machine's measured peak"


def named_parts(run: VerdictInput) -> str:
    """Return a sentence about the parts of the work. The parts are modules or, if there are none, annotations. On a
    CPU, if there are neither, they are the ops that the program calls (unless all ops are small).
    """
    called = run.called if run.device_ops and run.device_ops[0].share >= _LARGEST else ()
    of_kinds = (("module", _module_parts(run.modules)), ("annotation", run.annotated), ("op", called))
    for kind, parts in of_kinds:
        if large := _large(parts):
            named = ", ".join(f"{short_name(part.name)} {format_ratio(part.share)}" for part in large)
            included = ", backward pass included" if any(part.backward for part in large) else ""
            return f"By {kind}{included}: {named} of the work{_outside(run.modules) if kind == 'module' else ''}."
    return ""


def _outside(modules: Sequence[ModuleTime]) -> str:
    """Return a clause about the work outside of modules. The result is empty if it is small."""
    share = next((one.share for one in modules if one.depth == 0), 0)
    return f"; {format_ratio(share)} is {NO_MODULE}" if share >= _OUTSIDE else ""


def named_modules(modules: Sequence[ModuleTime]) -> list[str]:
    """Return the modules that sentences may mention: the outermost ones, and those among which the work is divided.

    A part without all modules of its class is left out: a sentence about the calls of the class would contradict its
    share. So are containers, whose names say nothing.
    """
    outermost = [one for one in modules if one.depth == 1 and one.share >= _WEIGHTY]
    outermost.sort(key=lambda one: -one.share)
    whole = _without_wrappers(modules)
    parts = [
        part for part in _large(_module_parts(modules)) if _class_part(whole, part.name).share <= _ALL * part.share
    ]
    names = dict.fromkeys([one.module or "" for one in outermost] + [part.name for part in parts])
    return [name for name in names if name not in _CONTAINERS]


def _large(parts: Sequence[Part]) -> list[Part]:
    return [part for part in parts if part.share >= _WEIGHTY][:_MOST_PARTS]


def _module_parts(modules: Sequence[ModuleTime]) -> list[Part]:
    """Return the modules among which the work is divided, largest first."""
    modules = _without_wrappers(modules)
    by_name: dict[str, list[ModuleTime]] = {}
    for one in _dividing(modules):
        by_name.setdefault(one.module or "", []).append(one)
    by_module = [
        Part(name, sum(one.share for one in same), any(one.backward_ns > 0 for one in same))
        for name, same in by_name.items()
    ]
    by_module.sort(key=lambda part: -part.share)
    # A class of layers may be spread over several modules, so the whole class may be larger than the largest module.
    spread = max((one.module for one in modules if one.module), key=lambda name: _own_ns(modules, name), default="")
    if spread in [part.name for part in by_module] and _class_part(modules, spread).share > by_module[0].share:
        return _by_class(modules, spread)
    return by_module


def _dividing(modules: Sequence[ModuleTime]) -> list[ModuleTime]:
    """Return the outermost modules among which the work is divided. If one of them does nearly all of their work, its
    submodules replace it, unless these are only layers and the module is not the whole model.
    """
    level = [one for one in modules if one.depth == 1]
    while level and _share(most := max(level, key=_share)) > _NEARLY_ALL * sum(map(_share, level)):
        inner = [one for one in modules if one.path and one.path.startswith(f"{most.path} > ")]
        children = _children(modules, most)
        if not children or (most.depth > 1 and len(children) == len(inner)):
            break
        level = [one for one in level if one is not most] + children
    while inside := [one for one in level if _only_contains(one) and _children(modules, one)]:
        level = [one for one in level if one not in inside] + [
            child for one in inside for child in _children(modules, one)
        ]
    return level


def _share(module: ModuleTime) -> float:
    return module.share


def _only_contains(module: ModuleTime) -> bool:
    """Whether the name of ``module`` says nothing about its work: it is a container, or is inside a module of its own
    class, as in a recursive model."""
    return module.module in _CONTAINERS or module.module in (module.path or "").split(INSIDE)[:-1]


def _children(modules: Sequence[ModuleTime], module: ModuleTime) -> list[ModuleTime]:
    return [one for one in modules if one.path and one.path.rpartition(INSIDE)[0] == module.path]


def _without_wrappers(modules: Sequence[ModuleTime]) -> list[ModuleTime]:
    """Remove wrappers, and their names from the paths of the modules inside them."""
    kept = []
    for one in modules:
        if one.module not in _WRAPPERS:
            names = (one.path or "").split(INSIDE)
            path = [name for name in names if name not in _WRAPPERS]
            inside = len(path) < len(names)
            kept.append(replace(one, path=INSIDE.join(path), depth=len(path)) if inside else one)
    return kept


def _by_class(modules: Sequence[ModuleTime], first: str) -> list[Part]:
    """Return the work of the class ``first`` and of others, largest first. No class in the result is ever inside
    another class, so that no work is counted twice."""
    paths = [one.path.split(INSIDE) for one in modules if one.path]
    ordered = [_class_part(modules, name) for name in {one.module for one in modules if one.module} - {first}]
    ordered.sort(key=lambda part: (-part.share, part.name))
    named = [_class_part(modules, first)]
    for part in ordered:
        if not any(part.name in path and any(one.name in path for one in named) for path in paths):
            named.append(part)
    return sorted(named, key=lambda part: -part.share)


def _own_ns(modules: Sequence[ModuleTime], name: str) -> int:
    return sum(one.own_ns for one in modules if one.module == name)


def _class_part(modules: Sequence[ModuleTime], name: str) -> Part:
    """Return the work of all modules of the class ``name``, including their submodules."""
    # Count only the outermost modules, because a module may be inside another module of its class.
    outermost = [one for one in modules if one.module == name and one.path and one.path.split(INSIDE).count(name) == 1]
    return Part(name, sum(one.share for one in outermost), any(one.backward_ns > 0 for one in outermost))


def is_well_fed(summary: Mapping[str, Metric]) -> bool:
    """Whether the device is so busy that any gain must come from its kernels."""
    idle = summary["device_idle_ratio"].value
    return idle is not None and idle < _WELL_FED


def is_memory_alone(run: VerdictInput) -> bool:
    """Whether the recording shows only memory and no times, as a snapshot of the allocator does."""
    return bool(run.memory) and run.summary["window_ms"].value is None


def _memory_sentence(uses: Sequence[MemoryUse]) -> str:
    """Return a sentence about the peak of a recording that shows only memory, and about the largest part of that
    peak.
    """
    first = uses[0]
    made = f", allocated by {first.makers}" if first.makers else ""
    largest = f"the largest part: {kind_label(first.kind)} ({format_bytes(first.bytes)}{made})"
    return f"The recording shows memory but no times. At its peak: {first.whole}; {largest}."


def _unknown(summary: Mapping[str, Metric]) -> str:
    """Return a clause about how long the device's state is unknown. The result is empty if it is always known."""
    unknown = summary["device_unknown_ratio"]
    if not unknown.value or not unknown.numerator:
        return ""
    lost = format_ns(unknown.numerator * 1e6)
    when = "at the start or end of the recording"
    return f"its state is unknown for {lost} {when}, and this time counts as neither busy nor idle"


def _best(run: VerdictInput) -> str:
    """Return a clause about the distance of a busy device from its peak, and about the time in kernels that only read
    and write memory. The result is empty if neither is large."""
    best = run.summary["roofline_ratio"].value
    distance = f", with its {_units(run)} at {format_ratio(best)} of their peak" if best and best < _NEAR_BEST else ""
    return "; ".join((distance, passes)) if (passes := _passes(run)) else distance


def _units(run: VerdictInput) -> str:
    """Return the word for the work of the device: kernels, or ops on a CPU."""
    return "ops" if run.device == "cpu" else "kernels"


def _passes(run: VerdictInput) -> str:
    """Return a clause about the time in kernels that only read and write memory. The result is empty if the time is
    short.
    """
    passes, window = (run.summary[name].value for name in ("passes_time_ms", "window_ms"))
    if not passes or not window or passes < LARGE * window:
        return ""
    spent = f"{format_ns(passes * 1e6)} of {format_ns(window * 1e6)}"
    return f"pointwise, normalisation and copy {_units(run)} take {spent}"


def short_name(name: str) -> str:
    """Return the name of a kernel without its template arguments."""
    return cut_name(re.sub(r"^void |[<(].*$", "", name))


def sentence(clause: str) -> str:
    """Turn ``clause`` into a sentence. An empty clause stays empty."""
    return clause and f"{clause[:1].upper()}{clause[1:]}."
