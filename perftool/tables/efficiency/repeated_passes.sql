-- One row per rank whose ops run on the CPU: the backward passes that follow one another within a step.
--
-- A pass ends where the program next runs an op that records gradients. A series of passes ends with the step, or with
-- a call to an optimizer. Passes inside such a call do not count, because an optimizer like LBFGS needs each of them.
--
-- absent: the CPU is not the device, or no backward pass is recorded
-- needs: ops, slices, roles, steps, launches, device_ops
-- empty without: ops, launches
-- column rank: INTEGER, distributed rank
-- column passes: DOUBLE, mean number of backward passes in a series
-- column runs: BIGINT, number of series
-- column ns: BIGINT, time from the first op that records gradients to the end of the last backward pass, summed over the series
-- column long_ns: BIGINT, the part of ns that ops longer than 300 us spend computing
-- column ts: BIGINT, start of the first series in ns
-- column dur: BIGINT, duration of the first series in ns
WITH optimizers AS (
    SELECT track, ts, "end" FROM slices WHERE side = 'host' AND name IN (SELECT name FROM roles WHERE role = 'optimizer_step')
),
calls AS (
    SELECT rank, track, ts, "end", id, starts_with(name, 'autograd::engine::evaluate_function') AS backward, coalesce(sequence >= 0, false) AS numbered,
           max("end") FILTER (backward) OVER (PARTITION BY track ORDER BY ts, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS backward_end
    FROM ops WHERE outermost AND rank IN (SELECT rank FROM launches WHERE own_work)
),
-- Ops inside a backward function, as in a reversible network, belong to its pass.
steps_calls AS (
    SELECT c.*, w.host_ts FROM calls AS c ASOF JOIN steps AS w ON w.rank = c.rank AND c.ts >= w.host_ts
    WHERE NOT w.partial AND c.ts < w.host_end AND (c.backward_end IS NULL OR c.ts >= c.backward_end)
),
counted AS (
    SELECT *, count_if(numbered AND NOT backward) OVER (PARTITION BY track ORDER BY ts, id) AS before FROM steps_calls WHERE numbered
),
placed AS (
    SELECT c.*, greatest(o."end", c.host_ts) AS after FROM counted AS c ASOF LEFT JOIN optimizers AS o ON o.track = c.track AND c.ts >= o.ts
    WHERE o.ts IS NULL OR c.ts >= o."end"
),
runs AS (
    SELECT rank, track, count(DISTINCT before) FILTER (backward) AS passes, min(ts) AS ts, max("end") FILTER (backward) AS "end"
    FROM placed GROUP BY rank, track, after HAVING passes > 0
),
long AS (
    SELECT r.rank, sum(d.dur) AS ns FROM device_ops AS d ASOF JOIN runs AS r ON r.track = d.track AND d.ts >= r.ts
    WHERE d.valid AND d.dur > 300000 AND d.ts < r."end" GROUP BY r.rank
)
SELECT r.rank, avg(r.passes) AS passes, count(*) AS runs, sum(r."end" - r.ts)::BIGINT AS ns, coalesce(max(l.ns), 0)::BIGINT AS long_ns,
       min(r.ts) AS ts, arg_min(r."end" - r.ts, (r.ts, r.track)) AS dur
FROM runs AS r LEFT JOIN long AS l USING (rank) GROUP BY r.rank ORDER BY r.rank
