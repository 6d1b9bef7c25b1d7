"""A sentence about steps of a run on the CPU that differ much in length: what the recording shows about the reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perftool.store.trace_store import TraceStore
from perftool.units import format_ns

# Steps differ much if the slowest takes this many times as long as the fastest, and at least a millisecond longer.
_SPREAD, _LEAST_NS = 1.35, 1_000_000
_FEWEST_STEPS = 3
# A part is not mentioned if it explains less than this share of the difference between the slowest and the fastest
# step.
_PART = 0.15
# Calls with equal shapes vary if they take this many times as long in the slower of two steps.
_LONGER = 1.1
# If the ops with known shapes take a smaller share of the computing time, the reason is not examined.
_KNOWN_SHAPES = 0.5
# Steps that compile do not count.
_STEPS = """
SELECT rank, step, dur, compute + collective + copy + fill AS busy_ns, idle_dataloader AS loading_ns
FROM steps
WHERE NOT partial AND step IS NOT NULL AND source <> 'iteration' AND confidence = 'high'
    AND rank IN (SELECT rank FROM launches WHERE own_work)
    AND step NOT IN (SELECT step FROM compilations WHERE step IS NOT NULL)
ORDER BY ts
"""
# The work of a call is its operations or, if there is no model of them, its bytes. At the mean speed of its op over
# all steps, the work of a step would take ``work_ns``. Calls with equal shapes are compared in the slowest and the
# fastest of the steps that contain them, by their median, because a single call may have been interrupted. The two
# steps with the largest difference are chosen.
_CALLS = """
WITH chosen AS (SELECT unnest($steps) AS step),
timed AS (SELECT * FROM steps SEMI JOIN chosen USING (step) WHERE NOT partial),
-- The shapes of lists of tensors do not show their sizes.
calls AS (
    SELECT t.step, t.dur AS step_ns, o.name, o.input_dims, o.input_types, o.concrete_inputs, count(*) AS calls,
           sum(d.dur)::BIGINT AS ns, (median(d.dur) * count(*))::BIGINT AS usual_ns
    FROM device_ops AS d JOIN ops AS o ON o.id = d.op ASOF JOIN timed AS t ON t.rank = o.rank AND o.ts >= t.host_ts
    WHERE d.valid AND o.ts < t.host_end
    GROUP BY t.step, t.dur, o.name, o.input_dims, o.input_types, o.concrete_inputs
),
sized AS (
    SELECT c.*, e.flops, e.bytes FROM calls AS c LEFT JOIN (FROM op_efficiency WHERE source = 'op') AS e
        USING (name, input_dims, input_types)
),
measured AS (
    SELECT name, bool_and(coalesce(flops > 0, false)) AS by_flops, bool_and(coalesce(bytes > 0, false)) AS by_bytes
    FROM sized GROUP BY name
),
works AS (
    SELECT s.name, s.step, s.calls, s.ns,
           s.calls * CASE WHEN m.by_flops THEN s.flops WHEN m.by_bytes THEN s.bytes ELSE 1 END AS work
    FROM sized AS s JOIN measured AS m USING (name)
),
by_name AS (
    SELECT name, sum(ns) AS ns, sum(work ORDER BY step, work) AS work,
           coalesce(sum(work ORDER BY work) FILTER (step = $slowest), 0) AS slow_work,
           coalesce(sum(work ORDER BY work) FILTER (step = $fastest), 0) AS fast_work,
           coalesce(sum(calls) FILTER (step = $slowest), 0)::BIGINT AS slow_calls,
           coalesce(sum(calls) FILTER (step = $fastest), 0)::BIGINT AS fast_calls
    FROM works GROUP BY name
),
parts AS (
    SELECT sum(ns / work * (slow_work - fast_work) ORDER BY name) AS work_ns,
           coalesce(sum(ns / work * (slow_work - fast_work) ORDER BY name) FILTER (slow_calls <> fast_calls), 0)
               AS calls_ns,
           sum(slow_calls)::BIGINT AS slow_calls, sum(fast_calls)::BIGINT AS fast_calls
    FROM by_name
),
equal AS (
    SELECT name, arg_max(step, (step_ns, step)) AS slow, arg_min(step, (step_ns, step)) AS fast,
           arg_max(usual_ns, (step_ns, step)) AS slow_ns, arg_min(usual_ns, (step_ns, step)) AS fast_ns,
           max(calls) AS calls
    FROM calls WHERE input_dims IS NOT NULL AND NOT contains(input_types, 'List')
    GROUP BY name, input_dims, input_types, concrete_inputs HAVING count(*) > 1 AND min(calls) = max(calls)
),
pairs AS (
    SELECT slow, fast, sum(slow_ns - fast_ns)::BIGINT AS more_ns, sum(fast_ns)::BIGINT AS fast_ns,
           arg_max({'name': name, 'slow_ns': slow_ns // calls, 'fast_ns': fast_ns // calls}, (slow_ns - fast_ns, name))
               AS op
    FROM equal GROUP BY slow, fast
)
SELECT p.*, q.more_ns, q.op,
       (SELECT sum(ns) FILTER (input_dims IS NOT NULL) / sum(ns) FROM calls) AS known
FROM parts AS p LEFT JOIN (
    SELECT * FROM pairs WHERE more_ns > ($longer - 1) * fast_ns ORDER BY more_ns DESC, slow, fast LIMIT 1
) AS q ON true
"""


@dataclass(frozen=True)
class StepSpread:
    """The lengths of steps that differ much, and what the recording shows about the reasons.

    ``works``: a clause about larger inputs or more ops in the slowest step.
    ``waits``: clauses about its longer time without computation.
    ``varies``: a clause about calls with equal shapes that take longer in slow steps.
    ``shapes``: whether the shapes of inputs are known.
    """

    lengths: str
    works: str = ""
    waits: tuple[str, ...] = ()
    varies: str = ""
    shapes: bool = True

    def sentence(self, explained: bool = False) -> str:
        """Return one sentence about the lengths and their reasons.

        ``explained``: whether another sentence says why calls may take longer.
        """
        clauses = [clause for clause in (self.works, *self.waits) if clause]
        if self.varies:
            clauses.append(self.varies if explained else f"{self.varies}, and the recording does not show why")
        if clauses:
            return f"{self.lengths}: {'; '.join(clauses)}."
        return f"{self.lengths}; the recording does not show why." if self.shapes else f"{self.lengths}."


def step_spread(store: TraceStore, step_word: str) -> StepSpread | None:
    """Return how much the steps of the only rank differ, and why, or None if they are about equally long, or too
    few.
    """
    store.build(["steps", "launches", "compilations"])
    steps = store.select(_STEPS)
    if len(steps) < _FEWEST_STEPS or len({step["rank"] for step in steps}) > 1:
        return None
    fastest, slowest = (choose(steps, key=lambda step: step["dur"]) for choose in (min, max))
    more_ns = slowest["dur"] - fastest["dur"]
    if slowest["dur"] < _SPREAD * fastest["dur"] or more_ns < _LEAST_NS:
        return None
    lengths = f"{step_word.capitalize()}s take {format_ns(fastest['dur'])} to {format_ns(slowest['dur'])}"
    store.build(["device_ops", "ops", "op_efficiency"])
    chosen = [step["step"] for step in steps]
    values = {"steps": chosen, "slowest": slowest["step"], "fastest": fastest["step"], "longer": _LONGER}
    found = next(iter(store.select(_CALLS, values)), None)
    if found is None or (found["known"] or 0) < _KNOWN_SHAPES:
        return StepSpread(lengths, shapes=False)
    return StepSpread(
        lengths, _works(found, _PART * more_ns), _waits(_PART * more_ns, fastest, slowest), _varies(found, more_ns)
    )


def _works(found: Mapping[str, Any], least_ns: float) -> str:
    """Return a clause about the additional work of the slowest step. The result is empty if it takes less than
    ``least_ns``.
    """
    if found["work_ns"] <= least_ns:
        return ""
    works = "has larger inputs"
    if found["calls_ns"] > 0.5 * found["work_ns"]:
        slow, fast = found["slow_calls"], found["fast_calls"]
        works = f"runs {slow:,} ops that compute instead of {fast:,}" if slow > fast else "runs other ops"
    more = format_ns(round(found["work_ns"]))
    return f"the slowest {works}, which take an estimated {more} more than those of the fastest"


def _waits(least_ns: float, fastest: Mapping[str, Any], slowest: Mapping[str, Any]) -> tuple[str, ...]:
    """Return clauses about waits for data, and about time without computation, if they are longer in the ``slowest``
    step by more than ``least_ns``."""
    clauses = []
    loading_ns = slowest["loading_ns"] - fastest["loading_ns"]
    if loading_ns > least_ns:
        clauses.append(f"the slowest waits {format_ns(loading_ns)} longer for data")
    slow, fast = (step["dur"] - step["busy_ns"] - step["loading_ns"] for step in (slowest, fastest))
    if slow - fast > least_ns:
        idle = f"{format_ns(slow)} of the slowest, and for {format_ns(fast)} of the fastest"
        clauses.append(f"no op computes for {idle}")
    return tuple(clauses)


def _varies(found: Mapping[str, Any], more_ns: int) -> str:
    if found["more_ns"] is None or found["more_ns"] < _PART * more_ns:
        return ""
    op = found["op"]
    times = f"{op['name']}, for example, {format_ns(op['slow_ns'])} instead of {format_ns(op['fast_ns'])}"
    return f"calls with equal shapes take longer in slower steps ({times})"
