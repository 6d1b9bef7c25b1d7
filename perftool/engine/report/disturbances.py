"""Sentences about what made the recorded steps of a run on the CPU longer: other work on its cores, or the profiler."""

from __future__ import annotations

from perftool.engine.rules.limits import cpu_times
from perftool.store.trace_store import TraceStore
from perftool.units import format_bytes, format_ns, format_ratio

# A wait that takes a smaller share of the recorded time is not mentioned.
_WEIGHTY = 0.05
# If child processes used the cores for at least this share of the waiting time, they are its likely cause.
_CAUSING = 0.5
_WAITED = """
SELECT l.overload_ns, l.overload_ns / l.wall_ns AS share, m.stolen_ns / m.cores > coalesce(m.delay_ns, 0) AS stolen,
       CASE WHEN m.children_ns >= $causing * l.overload_ns THEN m.children_ns END AS children_ns,
       CASE WHEN m.loader_workers > 0 THEN 'loader workers' ELSE 'child processes' END AS children,
       format('{}:{} ({})', w.file, w.line, w.function) AS line, w.share AS line_share
FROM machine_loads AS l JOIN machines AS m USING (rank) LEFT JOIN loader_lines AS w USING (rank)
WHERE rank = (SELECT min(rank) FROM machine_loads) AND NOT l.overloaded AND l.overload_ns > $weighty * l.wall_ns
"""
# If the OS takes a smaller share of the process's CPU time, new memory does not slow the process down much.
_SYSTEM_SHARE = 0.25
# Compared with the steps before the recording, the system's share of the CPU time, and the page faults per step, must
# be this many times as large. If there are no such steps, the process must have grown by this much.
_TIMES, _GROWTH_BYTES = 2, 1 << 30
# If recorded steps take this many times as long as earlier ones, both times are stated.
_MUCH_LONGER = 1.5
_GREW = """
SELECT p.grown_bytes, p.system_ns / p.process_ns AS share, q.system_ns / nullif(q.process_ns, 0) AS earlier_share,
       p.wall_ns / nullif(p.steps, 0) AS step_ns, q.wall_ns / nullif(q.steps, 0) AS earlier_step_ns,
       p.page_faults / nullif(p.steps, 0) AS faults, q.page_faults / nullif(q.steps, 0) AS earlier_faults
FROM memory_faults AS p LEFT JOIN memory_faults AS q ON q.rank = p.rank AND NOT q.profiled
WHERE p.profiled AND p.rank = (SELECT min(rank) FROM memory_faults) AND p.system_ns > $system * p.process_ns
    AND CASE WHEN earlier_share IS NULL OR faults IS NULL OR earlier_faults IS NULL THEN p.grown_bytes > $growth
             ELSE share > $times * earlier_share AND faults > $times * earlier_faults END
"""
# Recorded steps are mentioned only if they take this many times the CPU time of earlier steps.
_LENGTHENED = 1.05


def waiting_sentence(store: TraceStore) -> str:
    """Return a sentence about a thread of the first rank that waited for a core for some time, or about a hypervisor
    that took the core. The result is empty if that time is short, or so long that the machine counts as overloaded
    (TRC111). The sentence names the run's own child processes if they were busy for most of that time."""
    store.build(["machine_loads", "machines", "loader_lines"])
    rows = store.select(_WAITED, {"weighty": _WEIGHTY, "causing": _CAUSING})
    if not rows:
        return ""
    share, waited = format_ratio(rows[0]["share"]), format_ns(rows[0]["overload_ns"])
    if rows[0]["stolen"]:
        return f"A hypervisor withheld the cores of the run for {share} of the recorded time ({waited})."
    sentence = f"A thread of the run waited for a core for {share} of the recorded time ({waited})"
    if rows[0]["children_ns"]:
        sentence += f", while the run's own {rows[0]['children']} used {format_ns(rows[0]['children_ns'])} of CPU time"
        if rows[0]["line"]:
            sentence += f", {format_ratio(rows[0]['line_share'])} of it at {rows[0]['line']}"
    return f"{sentence}."


def growing_sentence(store: TraceStore) -> str:
    """Return a sentence about a process that took much new memory while it was recorded. The result is empty if it took
    little.

    For each recorded shape, PyTorch's profiler keeps a small block of memory. Such blocks split the large blocks that
    the program frees, so that the next tensor does not fit, and gets new memory from the system.
    """
    store.build(["memory_faults"])
    limits = {"growth": _GROWTH_BYTES, "system": _SYSTEM_SHARE, "times": _TIMES}
    rows = store.select(_GREW, limits)
    if not rows:
        return ""
    row = rows[0]
    share, before = format_ratio(row["share"]), row["earlier_share"]
    instead = "" if before is None else f", instead of {format_ratio(before)} in earlier steps"
    step, earlier = row["step_ns"], row["earlier_step_ns"]
    times = ""
    if step and earlier and step >= _MUCH_LONGER * earlier:
        times = f" A recorded step took {format_ns(step)} on average, an earlier one {format_ns(earlier)}."
    return (
        f"The process grew by {format_bytes(row['grown_bytes'])} while it was recorded, and the OS took {share} of its "
        f"CPU time{instead}.{times} The profiler may be the reason: it splits the memory that the program frees, so "
        "tensors get new memory. If so, ops on large tensors look slower than they are; record fewer steps."
    )


def lengthening_sentence(store: TraceStore) -> str:
    """Return a sentence about recorded steps of the first rank that took more CPU time than earlier ones. The result is
    empty if the difference is small, or if no earlier step was measured.

    The profiler takes time for each event, and it keeps memory. So in a step that is not recorded, work with few events
    may take a larger share.
    """
    store.build(["memory_faults"])
    first = store.select("SELECT min(rank) AS rank FROM memory_faults")[0]["rank"]
    times = None if first is None else cpu_times(store, first, _LENGTHENED)
    if times is None:
        return ""
    earlier = "the step measured" if times.earlier_steps == 1 else "a step"
    return (
        f"On average, a recorded step took {times.more} more CPU time than {earlier} before the recording "
        f"({format_ns(times.recorded_ns)} instead of {format_ns(times.earlier_ns)}), so shares and gains may differ in "
        "other steps."
    )
