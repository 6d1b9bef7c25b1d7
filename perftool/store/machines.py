"""The machines that traces were recorded on, as described by our recorders (perftool/integrations/machine.py)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perftool.model.cut_text import cut_text
from perftool.model.devices import is_rate
from perftool.model.recorded_on import LONGEST_PATH, RECORDED_KEY
from perftool.readers.text.json_values import integer, number

_VERSION = 1
# Larger values are impossible: times of 4.5 years, and numbers of cores, threads, workers and steps.
_MOST, _MOST_COUNTED = 2**57, 2**20
_LONGEST = 200
_LONGEST_DIMS, _MOST_OPS = 1_000, 100
_MOST_MODULES = 100
# Data types and layouts, in the order of the columns of ``op_speeds``.
_WAYS = ("fp32", "fp32_contiguous", "bf16", "fp32_channels_last", "bf16_channels_last")
# The changes that `record` tries on models, in the order of the columns of ``trials``. The column for the unchanged
# model comes before them.
_CHANGES = ("bf16", "bf16_dense", "channels_last", "bf16_channels_last", "bf16_weights")
# A page fault takes 0.2 to 3 us in the kernel. If the average is above this limit, the kernel did other work, such as
# I/O.
_MOST_NS_PER_FAULT = 5_000
# Steps that take this many times the CPU time of the recorded steps are not typical: a program's first steps also
# compile kernels and fill caches, which takes additional memory.
_MOST_LONGER = 1.5


def machines_of(metadata: Mapping[int, Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return rows of the table ``machines``: one per rank whose ``metadata`` describes its machine. Values of the wrong
    type become None."""
    return [_row(rank, found) for rank, found in _recorded(metadata)]


def _recorded(metadata: Mapping[int, Mapping[str, Any]]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield each rank that our recorders described, with its description."""
    for rank, top in metadata.items():
        found = _object(top.get(RECORDED_KEY))
        if found.get("version") == _VERSION:
            yield rank, found


def _row(rank: int, found: Mapping[str, Any]) -> tuple[Any, ...]:
    machine, process, steps, window = (
        _object(found.get(part)) for part in ("machine", "process", "steps", "window")
    )  # fmt: skip
    cores = [
        number
        for number in (_number(machine, "cores_allowed") or _number(machine, "cores"), _number(machine, "cores_quota"))
        if number and number <= _MOST_COUNTED
    ]
    own = [_whole(window, name) for name in ("cpu_ns", "workers_cpu_ns")]
    # The steps wait for the threads of the process, and only indirectly for its children.
    waiting = [_object(one) for one in _list(window.get("threads")) or _list(window.get("workers"))]
    longest = max(waiting, key=lambda one: _whole(one, "delay_ns") or 0, default={})
    return (
        rank,
        _text(machine, "processor"),
        min(cores, default=None),
        _count(process, "threads"),
        _count(process, "loader_workers"),
        _whole(steps, "recorded_ns") or None,
        _whole(steps, "before_ns") or None,
        _text(steps, "called"),
        _whole(window, "wall_ns"),
        None if own[0] is None else own[0] + (own[1] or 0),
        own[0],
        None if own[0] is None else own[1] or 0,
        _whole(window, "machine_cpu_ns"),
        _whole(window, "stolen_ns"),
        _whole(longest, "delay_ns"),
        _text(longest, "name"),
        cut_text(", ".join(one for one in _list(machine.get("instruction_sets")) if isinstance(one, str)), _LONGEST)
        or None,
        device_of(found),
    )


def memory_faults_of(metadata: Mapping[int, Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return rows of ``memory_faults``: the page faults of the recorded steps, and of the last steps before them unless
    those last steps took much more CPU time."""
    rows = []
    for rank, found in _recorded(metadata):
        window, steps, quiet = (_object(found.get(part)) for part in ("window", "steps", "quiet"))
        parts = [(window, True, _count(steps, "recorded")), (quiet, False, _count(quiet, "steps"))]
        recorded_ns, quiet_ns = (_mean_cpu_ns(part, count) for part, _, count in parts)
        if recorded_ns and quiet_ns and quiet_ns > _MOST_LONGER * recorded_ns:
            parts.pop()
        counted = [_counted(part, profiled, count) for part, profiled, count in parts]
        known = [one for one in counted if one is not None]
        for one in known:
            # The operating system measures its own time in ticks of a few ms, so its time for one fault is estimated
            # from the part with the most faults.
            renewed = _renewed(max(known, key=lambda part: part.faults), one)
            rows.append((rank, one.profiled, one.steps, one.wall_ns, one.process_ns, one.system_ns, one.faults,
                         one.faulted, one.grown, renewed))  # fmt: skip
    return rows


def _mean_cpu_ns(part: Mapping[str, Any], steps: int | None) -> float | None:
    cpu = _whole(part, "cpu_ns")
    return cpu / steps if cpu and steps else None


@dataclass(frozen=True)
class _Faults:
    """The page faults of some steps, as in ``memory_faults``."""

    profiled: bool
    steps: int | None
    wall_ns: int | None
    process_ns: int
    system_ns: int
    faults: int
    faulted: int
    grown: int


def _counted(part: Mapping[str, Any], profiled: bool, steps: int | None) -> _Faults | None:
    process, system, faults, page = (
        _whole(part, name) for name in ("cpu_ns", "system_ns", "page_faults", "page_bytes")
    )  # fmt: skip
    grown = _signed(part, "grown_bytes")
    if process is None or system is None or faults is None or page is None or grown is None or faults * page > _MOST:
        return None
    return _Faults(profiled, steps, _whole(part, "wall_ns"), process, system, faults, faults * page, grown)


def _renewed(most: _Faults, one: _Faults) -> int | None:
    """Return the time that page faults on freed memory took, if each took as long as the average fault of ``most``."""
    if not one.faulted or most.system_ns > _MOST_NS_PER_FAULT * most.faults:
        return None
    # The memory by which the process grew is new, rather than freed and allocated again. Steps in which the process
    # shrank are not typical: typical steps free as much as they allocate.
    renewed = max(0, one.faulted - abs(one.grown)) / one.faulted
    return round(most.system_ns / most.faults * one.faults * renewed)


def op_speeds_of(metadata: Mapping[int, Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return rows of ``op_speeds``: the ops that were repeated after the recording, one row per rank, name
    and shapes."""
    rows: dict[tuple[int, str, str], tuple[Any, ...]] = {}
    for rank, one in _listed(metadata, "ops", _MOST_OPS):
        name, dims = _text(one, "name"), _dims(one.get("input_dims"))
        times = [_whole(one, f"{way}_ns") or None for way in _WAYS]
        if name and times[0] and dims:
            rows.setdefault((rank, name, dims), (rank, name, dims, *times))
    return list(rows.values())


def _dims(value: Any) -> str | None:
    """Return ``value`` as in the column ``input_dims``."""
    try:
        text = json.dumps(_list(value), separators=(",", ":"))
    except RecursionError:
        return None
    return text if 2 < len(text) <= _LONGEST_DIMS else None


def repeated_calls_of(metadata: Mapping[int, Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return rows of ``repeated_calls``: the modules that were called again with the same inputs."""
    rows: dict[tuple[int, str], tuple[Any, ...]] = {}
    for rank, one in _listed(metadata, "repeated_calls", _MOST_MODULES):
        module, path = _text(one, "module"), _path(one)
        calls, repeated, modules = (_count(one, name) for name in ("calls", "repeated", "modules"))
        if module and path is not None and calls and repeated and modules and repeated < calls:
            rows.setdefault((rank, module), (rank, module, path, calls, repeated, modules))
    return list(rows.values())


def padded_inputs_of(metadata: Mapping[int, Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return rows of ``padded_inputs``: the padding in the sequences that embeddings looked up or a model got."""
    rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for rank, one in _listed(metadata, "padded_inputs", _MOST_MODULES):
        path, sizes = _path(one), [_whole(one, name) for name in ("vocabulary", "width", "axis")]
        tokens, padded, cut, empty = (_whole(one, name) for name in ("tokens", "padded", "cut", "empty"))
        height, width, axis = sizes
        of_tokens, of_frames = height is not None and axis is None, height is None and axis in (0, 1, 2)
        known = path is not None and width and (of_tokens or of_frames)
        if known and tokens and padded and cut is not None and max(cut, empty or 0) <= padded < tokens:
            rows.setdefault((rank, path, *sizes), (rank, path, height, width, axis, tokens, padded, cut, empty))
    return list(rows.values())


def ignored_targets_of(metadata: Mapping[int, Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return rows of ``ignored_targets``: the losses that ignored some of their targets."""
    rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for rank, one in _listed(metadata, "ignored_targets", _MOST_MODULES):
        path, (classes, targets, ignored) = (
            _path(one),
            (_whole(one, name) for name in ("classes", "targets", "ignored")),
        )
        if path is not None and classes and targets and ignored and ignored <= targets:
            rows.setdefault((rank, path, classes), (rank, path, classes, targets, ignored))
    return list(rows.values())


def loader_calls_of(metadata: Mapping[int, Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return rows of ``loader_calls``: what the workers of data loaders did."""
    rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for rank, one in _listed(metadata, "loader_calls", _MOST_MODULES):
        file, function, inside = (_text(one, name) or None for name in ("file", "function", "inside"))
        line, samples, fetching = _count(one, "line"), _whole(one, "samples"), _whole(one, "fetching")
        known = file and line and function if file or function else inside
        if known and samples and fetching:
            call = file, line if file else None, function, inside
            rows.setdefault((rank, *call), (rank, *call, samples, fetching))
    sampled: dict[int, list[tuple[Any, ...]]] = {}
    for row in rows.values():
        sampled.setdefault(row[0], []).append(row)
    return [row for those in sampled.values() if _fit(those) for row in those]


def _fit(calls: list[tuple[Any, ...]]) -> bool:
    """Whether the samples of ``calls`` can be parts of the stated number of all samples."""
    return len({fetching for *_, fetching in calls}) == 1 and sum(row[-2] for row in calls) <= calls[0][-1]


def trials_of(metadata: Mapping[int, Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return rows of ``trials``: the calls to models that were repeated with changes."""
    rows = []
    for rank, one in _listed(metadata, "trials", _MOST_MODULES):
        path, calls, base = _path(one), _count(one, "calls"), _whole(one, "base_ns")
        if path is not None and calls and base:
            failed = [change for change in _CHANGES if change in _list(one.get("failed"))]
            times = [_whole(one, f"{change}_ns") or None for change in _CHANGES]
            errors = (_text(one, name) or None for name in ("error", "error_line"))
            backward = one.get("backward") if isinstance(one.get("backward"), bool) else None
            rows.append((rank, path, calls, backward, base, *times, ", ".join(failed) or None, *errors))
    return rows


def _listed(metadata: Mapping[int, Mapping[str, Any]], name: str, most: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the first ``most`` objects of the list ``name`` in each recording, with the rank."""
    for rank, found in _recorded(metadata):
        for one in map(_object, _list(found.get(name))[:most]):
            yield rank, one


def _path(one: Mapping[str, Any]) -> str | None:
    """Return the path of modules in ``one``."""
    path = one.get("path")
    return path if isinstance(path, str) and len(path) <= LONGEST_PATH else None


def threads_of(metadata: Mapping[int, Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return rows of ``machine_threads``: the threads for which a trace contains CPU times."""
    rows: dict[tuple[int, int | None], tuple[Any, ...]] = {}
    for rank, found in _recorded(metadata):
        for one in map(_object, _list(_object(found.get("window")).get("threads"))):
            times = [_whole(one, name) for name in ("tid", "cpu_ns", "delay_ns")]
            if None not in times:
                rows.setdefault((rank, times[0]), (rank, str(times[0]), *times[1:]))
    return list(rows.values())


def device_of(found: Any) -> str | None:
    """Return the name of the CPU described in ``found``, if ``found`` contains its measured rates; otherwise, return
    None.

    The name includes the number of threads, because the rates depend on it.
    """
    machine, process = _object(found.get("machine")), _object(found.get("process"))
    threads = _count(process, "threads")
    if threads is None or not any(_figures(_object(found.get("peaks")))):
        return None
    return f"{_text(machine, 'processor') or 'CPU'}, {threads} thread{'s' if threads > 1 else ''}"


_SOURCE = "measured when the trace was recorded, with matmuls and copies in PyTorch"


def cpu_facts(metadata: Mapping[int, Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return rows of ``device_facts`` for CPUs whose rates were measured when their traces were recorded."""
    best: dict[tuple[str, str, str], float] = {}
    for _, found in _recorded(metadata):
        if (name := device_of(found)) is None:
            continue
        for fact, unit, value in _figures(_object(found.get("peaks"))):
            best[name, fact, unit] = max(value, best.get((name, fact, unit), 0.0))
    return [(name, fact, value, unit, False, _SOURCE) for (name, fact, unit), value in best.items()]


def _figures(peaks: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    products = _object(peaks.get("products"))
    rates = {f"matrix peak {dtype}": _number(products, dtype) for dtype in ("fp32", "bf16")}
    # A CPU runs 32-bit matmuls on its vector units.
    rates["vector peak fp32"] = _number(products, "fp32")
    for fact, rate in rates.items():
        if is_rate(rate):
            yield fact, "FLOP/s", rate
    bandwidth = _number(peaks, "memory_bandwidth")
    if is_rate(bandwidth):
        yield "memory_bandwidth", "bytes/s", bandwidth


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(found: Mapping[str, Any], name: str) -> float | None:
    value = number(found.get(name), _MOST + 1)
    return None if value is None else float(value)


def _whole(found: Mapping[str, Any], name: str) -> int | None:
    value = _number(found, name)
    return None if value is None else int(value)


def _count(found: Mapping[str, Any], name: str) -> int | None:
    value = _whole(found, name)
    return None if value is None or value > _MOST_COUNTED else value


def _signed(found: Mapping[str, Any], name: str) -> int | None:
    return integer(found.get(name), _MOST + 1, signed=True)


def _text(found: Mapping[str, Any], name: str) -> str | None:
    value = found.get(name)
    return cut_text(value, _LONGEST) if isinstance(value, str) else None
