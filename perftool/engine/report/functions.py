"""A sentence on the user's functions that divide the time of a run on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

from perftool.engine.report.causes import cut_name
from perftool.engine.rules.stretches import FunctionTime, lines_run
from perftool.store.trace_store import TraceStore
from perftool.units import format_ratio

# A function with more of the time is the whole program or its loop, so the functions that it calls are named.
_WHOLE = 0.9
# Smaller functions are not named.
_WEIGHTY = 0.05
# If the largest function has a smaller share, the user's functions do not show where the time goes.
_LARGEST = 0.2
_MOST_NAMED = 3
_WINDOWS = "SELECT rank, host_end - host_ts AS ns, steps FROM windows ORDER BY rank LIMIT 1"


def functions_sentence(store: TraceStore, has_steps: bool) -> str:
    """The user's outermost functions that divide the time of the first rank, with the number of their calls; empty if
    the recording has no stacks, or if one function has all of the time and calls no other.
    """
    store.build(["windows", "frames"])
    windows = store.select(_WINDOWS)
    if not windows or not store.has_rows("frames"):
        return ""
    rank, whole_ns, steps = windows[0].values()
    level = _dividing(lines_run(store, rank).outermost, whole_ns)
    large = [one for one in level if one.ns >= _WEIGHTY * whole_ns][:_MOST_NAMED]
    if not large or large[0].ns < _LARGEST * whole_ns or _is_all(large, whole_ns, steps):
        return ""
    named = "; ".join(_named(one, whole_ns, steps if has_steps else 0) for one in large)
    return f"By function outside PyTorch: {named}."


def _is_all(large: Sequence[FunctionTime], whole_ns: int, steps: int) -> bool:
    """Whether one call in each step has all of the time."""
    return len(large) == 1 and large[0].ns > _WHOLE * whole_ns and large[0].calls <= steps


def _dividing(functions: Sequence[FunctionTime], whole_ns: int) -> list[FunctionTime]:
    """The outermost functions that divide the time, longest first."""
    level = sorted(functions, key=lambda one: -one.ns)
    while level and level[0].ns > _WHOLE * whole_ns and level[0].inner:
        level = sorted(level[0].inner.values(), key=lambda one: -one.ns)
    return level


def _named(one: FunctionTime, whole_ns: int, steps: int) -> str:
    file, line, function = one.line
    # The folder shows whether the file belongs to a library.
    parts = (file or "").replace("\\", "/").split("/")
    place = f"{'/'.join(parts[-1:] if file and file.startswith('/') else parts[-2:])}{f':{line}' if line else ''}"
    calls = round(one.calls / steps) if steps else one.calls
    often = f", {calls:,} calls{' per step' if steps else ''}" if calls > 1 else ""
    return f"{cut_name(function)} ({place}) {format_ratio(one.ns / whole_ns)}{often}"
