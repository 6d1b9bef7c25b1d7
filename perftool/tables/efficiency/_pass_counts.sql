-- Backward passes on a CPU. A pass ends where the program runs an op that records gradients again.
--
-- needs: ops, slices, windows, launches
-- empty without: ops, launches
-- column rank: INTEGER, distributed rank
-- column passes: DOUBLE, backward passes of a step
WITH calls AS (
    SELECT o.rank, o.track, o.ts, o.id, starts_with(o.name, 'autograd::engine::evaluate_function') AS backward,
           coalesce(o.sequence >= 0, false) AS numbered
    FROM ops AS o JOIN slices AS s USING (id)
    JOIN windows AS w ON w.rank = o.rank AND o.ts >= w.host_ts AND o.ts < w.host_end
    WHERE s.outermost AND o.rank IN (SELECT rank FROM launches WHERE own_work)
),
passes AS (
    SELECT rank, track, backward,
           count_if(numbered AND NOT backward) OVER (PARTITION BY track ORDER BY ts, id) AS before
    FROM calls
)
SELECT p.rank, count(DISTINCT (p.track, p.before)) / w.steps AS passes
FROM passes AS p JOIN windows AS w USING (rank) WHERE p.backward GROUP BY p.rank, w.steps
