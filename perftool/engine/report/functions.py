"""Sentences about how much time of a run on the CPU goes to the user's functions and to the optimizer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from perftool.engine.report.causes import cut_name
from perftool.engine.rules.stretches import FunctionTime, lines_run
from perftool.model.own_code import Line
from perftool.store.trace_store import TraceStore
from perftool.units import NS_PER_S, format_ns, format_ratio

# A function with a larger share is the whole program or its main loop, so the functions that it calls are named
# instead.
_WHOLE = 0.9
# Functions with a smaller share are not named.
_WEIGHTY = 0.05
# If the largest function has a smaller share, the user's functions do not show where the time goes.
_LARGEST = 0.2
_MOST_NAMED = 3
_CALLED_ONCE = ("<module>", "main")
# An optimizer with a smaller share is not named.
_LARGE_OPTIMIZER = 0.15
# The optimizer that takes the most time on the first rank, except for optimizers that call another one. The last call
# may end long after the window, because the profiler stops and saves its trace during this call.
_OPTIMIZER = """
WITH calls AS (
    SELECT *, lead(ts) OVER (PARTITION BY track ORDER BY ts, "end" DESC) AS next_ts FROM optimizer_steps
)
SELECT c.class, sum(least(c."end", w.host_end) - c.ts) / any_value(w.host_end - w.host_ts) AS share
FROM calls AS c JOIN windows AS w ON w.rank = c.rank AND c.ts >= w.host_ts AND c.ts < w.host_end
WHERE (next_ts IS NULL OR next_ts >= c."end") AND c.rank = (SELECT min(rank) FROM windows)
GROUP BY c.class ORDER BY share DESC, c.class LIMIT 1
"""
# A recording longer than this contains most of the work that a program repeats.
_SHORT_NS = 3 * NS_PER_S
_ONE_OFF = "FROM one_offs WHERE rank = (SELECT min(rank) FROM windows)"
_WINDOWS = "SELECT rank, host_end - host_ts AS ns, steps FROM windows ORDER BY rank LIMIT 1"


@dataclass(frozen=True)
class _Part:
    """A function and its time in ns. If ``itself`` is set, only its work outside modules and other functions is
    counted.
    """

    line: Line
    ns: int
    calls: int
    backward: bool
    itself: bool = False
    op: str = ""


def functions_sentence(store: TraceStore, has_steps: bool, has_modules: bool) -> tuple[str, tuple[Line, ...]]:
    """Return a sentence about how the first rank's time is divided among the user's functions, and the lines of these
    functions.

    The sentence is empty if the recording has no stacks, or if the functions say little about the time. That is the
    case if the largest function has a small share, if a function that is called at most once per step has nearly all of
    the time, if all functions are ``forward`` methods of modules (which have their own sentence), or if the same work
    counts for several of them.
    """
    outermost, whole_ns, steps = _outermost(store)
    level = _dividing(outermost, whole_ns)
    large = [one for one in level if one.ns >= _WEIGHTY * whole_ns][:_MOST_NAMED]
    if not large or large[0].ns < _LARGEST * whole_ns or _is_all(large, whole_ns, steps):
        return "", ()
    if has_modules and all(one.line[2] == "forward" and not one.itself for one in large):
        return "", ()
    # A gradient that is itself differentiated counts for the function that computes it and for the forward pass.
    if sum(one.ns for one in large) > whole_ns:
        return "", ()
    named = "; ".join(_named(one, whole_ns, steps if has_steps else 0) for one in large)
    included = ", backward pass included" if any(one.backward for one in large) else ""
    places = tuple(one.line for one in large if not one.itself)
    return f"Time by function, outside PyTorch{included}: {named}.", places


def narrow_sentence(store: TraceStore) -> str:
    """Return a sentence about the call that contains all steps of the first rank's recording. Work that the program
    does between such calls is then not recorded. It is empty if the recording is long, or not known to be within one
    call.
    """
    outermost, whole_ns, steps = _outermost(store)
    around = _around_all(outermost, whole_ns) if steps and whole_ns <= _SHORT_NS else None
    if around is None:
        return ""
    file, line, function = around.line
    return (
        f"All steps ({format_ns(whole_ns)}) are within one call to {cut_name(function)} ({place_text(file, line)}). "
        "Work before and after them, and between such calls, is not in these figures; to see it, record more steps."
    )


def one_off_sentence(store: TraceStore) -> str:
    """Return a sentence about a long call that only one of the few steps of the first rank makes. The result is empty
    if there is none.
    """
    store.build(["one_offs", "windows"])
    rows = store.select(_ONE_OFF)
    if not rows:
        return ""
    row = rows[0]
    return (
        f"Step {row['step']} takes {format_ns(row['step_ns'])} instead of {format_ns(row['median_ns'])}: it alone "
        f"calls {cut_name(row['function'])} ({place_text(row['file'], row['line'])}), which takes "
        f"{format_ns(row['ns'])}. {row['steps']} steps do not show how often that recurs, so gains do not include it."
    )


def _outermost(store: TraceStore) -> tuple[tuple[FunctionTime, ...], int, int]:
    """Return the user's outermost functions on the first rank, the length of its window in ns, and its number of steps.
    There are no functions if the recording has no stacks."""
    store.build(["windows", "frames"])
    windows = store.select(_WINDOWS)
    if not windows or not store.has_rows("frames"):
        return (), 0, 0
    rank, whole_ns, steps = windows[0].values()
    return lines_run(store, rank).outermost, whole_ns, steps


def _around_all(functions: Sequence[FunctionTime], whole_ns: int) -> FunctionTime | None:
    """Return the innermost function that spends nearly all of the time in a single call. Return None for a module, and
    for the program's main function: each is called only once."""
    around: FunctionTime | None = None
    while functions and (longest := max(functions, key=lambda one: one.ns)).ns > _WHOLE * whole_ns:
        if longest.calls != 1:
            break
        around, functions = longest, tuple(longest.inner.values())
    return None if around is None or around.line[2] in _CALLED_ONCE else around


def optimizer_sentence(store: TraceStore) -> str:
    """Return a sentence about the share of the time that the first rank's optimizer takes. The result is empty if it is
    small.
    """
    store.build(["windows", "optimizer_steps"])
    rows = store.select(_OPTIMIZER)
    if not rows or rows[0]["share"] < _LARGE_OPTIMIZER:
        return ""
    return f"The optimizer ({cut_name(rows[0]['class'])}) takes {format_ratio(rows[0]['share'])} of the time."


def _is_all(large: Sequence[_Part], whole_ns: int, steps: int) -> bool:
    """Whether nearly all of the time is in one function that is called at most once per step."""
    return len(large) == 1 and large[0].ns > _WHOLE * whole_ns and large[0].calls <= steps


def _dividing(functions: Sequence[FunctionTime], whole_ns: int) -> list[_Part]:
    """Return the outermost functions among which the time is divided, and the work of their caller itself, largest
    first.
    """
    around: FunctionTime | None = None
    while functions and (longest := max(functions, key=lambda one: one.ns)).ns > _WHOLE * whole_ns:
        if not longest.inner and sum(longest.own.values()) < _LARGEST * whole_ns:
            break
        around, functions = longest, tuple(longest.inner.values())
    parts = [_Part(one.line, one.ns, one.calls, one.backward_ns > 0) for one in functions]
    if around and around.own and (itself := _itself(around)):
        parts.append(itself)
    return sorted(parts, key=lambda one: -one.ns)


def _itself(one: FunctionTime) -> _Part | None:
    """Return the work of the function ``one`` itself, with the line and the op that account for more than half of it,
    if any, or None if at least half of it is in other files, such as those of a library.
    """
    whole_ns = sum(one.own.values())
    by_line: Counter[Line] = Counter()
    by_op: Counter[str] = Counter()
    for (line, op), ns in one.own.items():
        by_line[line] += ns
        by_op[op] += ns
    if 2 * sum(ns for line, ns in by_line.items() if line[0] == one.line[0]) <= whole_ns:
        return None
    (line, line_ns), (op, op_ns) = by_line.most_common(1)[0], by_op.most_common(1)[0]
    place = (line[0], line[1], one.line[2]) if 2 * line_ns > whole_ns else one.line
    return _Part(place, whole_ns, 0, True, True, op if 2 * op_ns > whole_ns else "")


def _named(one: _Part, whole_ns: int, steps: int) -> str:
    file, line, function = one.line
    place = place_text(file, line)
    calls = round(one.calls / steps) if steps else one.calls
    often = f", {calls:,} calls{' per step' if steps else ''}" if calls > 1 else ""
    mostly = f", mostly {cut_name(one.op)}" if one.op else ""
    itself = " itself" if one.itself else ""
    return f"{cut_name(function)}{itself} ({place}{mostly}) {format_ratio(one.ns / whole_ns)}{often}"


def place_text(file: str | None, line: int | None) -> str:
    """Return the file and the line, with the folder of a relative path, which shows whether the file belongs to a
    library.
    """
    parts = (file or "").replace("\\", "/").split("/")
    return f"{'/'.join(parts[-1:] if file and file.startswith('/') else parts[-2:])}{f':{line}' if line else ''}"
