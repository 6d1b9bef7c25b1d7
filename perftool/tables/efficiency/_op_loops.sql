-- The loop of ops that takes the most time on each rank whose ops run on the CPU, among loops that run at least 8 times
-- a step.
--
-- An op belongs to a loop of n ops if the last call of the same op was n calls ago. The time of a loop is the time
-- between the calls of its longest op.
--
-- needs: ops, windows, launches, optimizer_steps
-- empty without: ops, launches
-- column rank: INTEGER, distributed rank
-- column length: BIGINT, number of ops in the loop
-- column times: DOUBLE, number of passes of the loop in a step
-- column share: DOUBLE, share of the window
-- column ts: BIGINT, start of the first pass of the loop in ns
-- column end: BIGINT, end of the last pass of the loop in ns
-- column names: VARCHAR, the longest of the ops that run once in each pass, joined by ', '; NULL if such ops take less than a third of the loop's time
WITH calls AS (
    SELECT o.rank, o.track, o.id, o.name, o.ts, o.dur, row_number() OVER (PARTITION BY o.track ORDER BY o.ts, o.id) AS number
    FROM ops AS o JOIN windows AS w ON w.rank = o.rank AND o.ts >= w.host_ts AND o.ts < w.host_end
    ASOF LEFT JOIN optimizer_steps AS u ON u.track = o.track AND o.ts >= u.ts
    WHERE o.outermost AND contains(o.name, '::') AND o.rank IN (SELECT rank FROM launches WHERE own_work)
        -- Leave out the ops of an optimizer: FUS101 reports its loop over the parameters.
        AND (u.ts IS NULL OR o.ts >= u."end")
),
recurring AS (
    SELECT *, number - lag(number) OVER again AS length, ts - lag(ts) OVER again AS turn_ns
    FROM calls WINDOW again AS (PARTITION BY track, name ORDER BY number)
),
counted AS (
    SELECT rank, length, name, count(*) AS n, sum(dur) AS ns, sum(turn_ns) AS loop_ns, min(ts - turn_ns) AS ts, max(ts + dur) AS "end"
    FROM recurring WHERE length > 1 GROUP BY rank, length, name
),
loops AS (
    SELECT rank, length, arg_max(n, (ns, name)) AS n, arg_max(loop_ns, (ns, name)) AS loop_ns, sum(ns) AS ns,
           -- Ops with less than half as many calls as others recur at this distance only by chance.
           min(ts) FILTER (2 * n > most) AS ts, max("end") FILTER (2 * n > most) AS "end",
           array_to_string(arg_max(cut_text(name, 60), (ns, name), 3)[:length], ', ') AS names, count(*) AS kinds
    -- Leave out loops that consist mostly of backward functions, because they are the backward pass of identical
    -- layers.
    FROM (SELECT *, max(n) OVER (PARTITION BY rank, length) AS most FROM counted) GROUP BY rank, length HAVING kinds > 1 AND sum(ns) FILTER (NOT starts_with(name, 'autograd::')) > 0.2 * sum(ns)
)
SELECT l.rank, l.length, l.n / w.steps AS times, least(l.loop_ns / w.dur, 1) AS share, l.ts, l."end", CASE WHEN 3 * l.ns >= l.loop_ns THEN l.names END AS names
FROM loops AS l JOIN windows AS w USING (rank) WHERE l.n >= 8 * w.steps
QUALIFY row_number() OVER (PARTITION BY l.rank ORDER BY l.loop_ns DESC, l.length) = 1
