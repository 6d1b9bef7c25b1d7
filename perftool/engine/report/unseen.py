"""What the host did in a run whose device events are missing."""

from __future__ import annotations

from dataclasses import dataclass

from perftool.store.trace_store import TraceStore
from perftool.units import format_ns

# Stretches with a smaller share of the window are not mentioned.
_NOTICEABLE = 0.05
_SIGN = """
SELECT r.name FROM roles AS r JOIN slices AS s ON s.name = r.name AND s.cat = r.cat
WHERE r.role = 'on_device' GROUP BY r.name ORDER BY count(*) DESC, r.name LIMIT 1
"""
_STATED = "SELECT sign AS name FROM _device_signs WHERE starts_with(sign, 'the backend') ORDER BY rank LIMIT 1"
# A thread that only runs the backward pass is evidence of an accelerator: on the CPU, the calling thread runs the pass.
_BACKWARD = """
SELECT 'a thread that only runs the backward pass' AS name FROM slices
WHERE cat = 'cpu_op' AND depth = 0 GROUP BY rank, track
HAVING bool_and(name IN (SELECT name FROM roles WHERE role = 'autograd')) LIMIT 1
"""
_CALLS = "SELECT 1 FROM slices WHERE cat = 'runtime' LIMIT 1"
# The longest stretch without an op on the threads that feed the device, and the innermost annotation around it.
_SILENCE = """
WITH busy AS (
    SELECT s.rank, 0 AS class, s.ts, s."end" FROM slices AS s JOIN feeding_tracks AS f ON f.track = s.track
    WHERE s.side = 'host' AND s.cat IN ('cpu_op', 'runtime') AND s.outermost AND NOT is_step(s.name)
),
silent AS (
    SELECT rank, "end" AS ts, lead(ts) OVER (PARTITION BY rank ORDER BY ts) - "end" AS dur FROM interval_union(busy)
),
longest AS (SELECT s.* FROM silent AS s JOIN windows AS w ON w.rank = s.rank AND s.ts >= w.ts AND s.ts < w."end"
            WHERE s.dur IS NOT NULL ORDER BY s.dur DESC, s.ts LIMIT 1)
SELECT l.dur, w.dur AS whole, arg_min(a.name, a.dur) AS place,
       arg_min(a.name IN (SELECT name FROM roles WHERE role = 'autograd_wait'), a.dur) AS autograd
FROM longest AS l JOIN windows AS w USING (rank)
LEFT JOIN slices AS a ON a.rank = l.rank AND a.side = 'host' AND a.cat = 'user_annotation' AND NOT is_step(a.name)
    AND a.ts <= l.ts + l.dur / 2 AND a."end" >= l.ts + l.dur / 2
GROUP BY l.dur, w.dur
"""
_READS = """
SELECT o.name, sum(o.dur)::BIGINT AS dur FROM ops AS o
JOIN windows AS w ON w.rank = o.rank AND o.ts >= w.ts AND o.ts < w."end"
LEFT JOIN slices AS p ON p.id = o.parent
WHERE o.name IN (SELECT name FROM roles WHERE role = 'scalar_read')
    AND coalesce(p.name, '') NOT IN (SELECT name FROM roles WHERE role = 'scalar_read')
GROUP BY o.name ORDER BY dur DESC, o.name LIMIT 1
"""


@dataclass(frozen=True)
class Unseen:
    """``sign`` is a name that proves that a device was used. ``shown`` contains sentences about what the host did."""

    sign: str
    shown: str


def unseen(store: TraceStore) -> Unseen | None:
    """Return what the host did in a run whose device events are missing, or None for any other run."""
    # A store merged from several tasks lacks device_ops, but has device_windows.
    if store.has_rows("device_ops") or store.has_rows("device_windows"):
        return None
    store.build(["roles", "slices", "feeding_tracks", "windows", "ops", "_device_signs"])
    signs = store.select(_SIGN)
    # If there are runtime calls, ignore the weaker signs, because rules already use these calls as evidence about the
    # device.
    if not signs and not store.select(_CALLS):
        signs = store.select(_STATED) or store.select(_BACKWARD)
    return Unseen(signs[0]["name"], _shown(store)) if signs else None


def _shown(store: TraceStore) -> str:
    silence = next(iter(store.select(_SILENCE)), None)
    if silence is None:
        return ""
    clauses = []
    if silence["dur"] > _NOTICEABLE * silence["whole"]:
        place = f" in {silence['place']}" if silence["place"] else ""
        why = ": the host waits for the threads of the autograd engine, which were not recorded"
        clauses.append(
            f"No op runs on the host for {format_ns(silence['dur'])} of {format_ns(silence['whole'])}{place}"
            f"{why if silence['autograd'] else ', and the recording does not show what the host does in that time'}."
        )
    read = next(iter(store.select(_READS)), None)
    if read and read["dur"] > _NOTICEABLE * silence["whole"]:
        clauses.append(f"The host spends {format_ns(read['dur'])} in {read['name']}, which waits for the device.")
    return " ".join(clauses)
