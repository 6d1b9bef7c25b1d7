-- For each cause (framework_op, collective), the outermost op on the feeding threads that accounts for most of the idle
-- time.
--
-- needs: gap_causes, ops, feeding_tracks, windows, roles
-- empty without: gap_causes, ops
-- column rank: INTEGER, distributed rank
-- column cause: VARCHAR, gap_causes.cause: framework_op or collective
-- column op: VARCHAR, name of the op
-- column ns: BIGINT, idle time with this cause inside the op; for a collective, plus the idle time between it and the next one
-- column calls: BIGINT, number of calls of the op in the window
WITH stretches AS (
    SELECT rank, cause, ts, dur FROM gap_causes WHERE cause IN ('framework_op', 'collective')
),
outer_ops AS (
    SELECT o.rank, o.name, o.ts, o.name IN (SELECT name FROM roles WHERE role IN ('process_group', 'collective', 'host_collective')) AS collective
    FROM ops AS o JOIN feeding_tracks AS f ON f.track = o.track
    JOIN windows AS w ON w.rank = o.rank AND o.ts >= w.host_ts AND o.ts < w.host_end
    WHERE o.outermost AND EXISTS (FROM stretches)
),
around AS (
    SELECT t.rank, t.cause, o.name AS op, t.dur FROM (FROM stretches WHERE cause = 'framework_op') AS t ASOF JOIN outer_ops AS o ON o.rank = t.rank AND t.ts >= o.ts
    UNION ALL
    SELECT t.rank, t.cause, o.name, t.dur FROM (FROM stretches WHERE cause = 'collective') AS t
    ASOF JOIN (FROM outer_ops WHERE collective) AS o ON o.rank = t.rank AND t.ts >= o.ts
),
summed AS (SELECT rank, cause, op, sum(dur) AS ns FROM around GROUP BY rank, cause, op)
SELECT s.rank, s.cause, s.op, s.ns::BIGINT AS ns, c.calls
FROM summed AS s JOIN (SELECT rank, name, count(*) AS calls FROM outer_ops GROUP BY rank, name) AS c ON c.rank = s.rank AND c.name = s.op
QUALIFY row_number() OVER (PARTITION BY s.rank, s.cause ORDER BY s.ns DESC, s.op) = 1
