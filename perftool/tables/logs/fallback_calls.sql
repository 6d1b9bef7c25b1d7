-- One row per CPU execution of an operator in the trace. Either the bridge recorded the fallback, or a log says that
-- the operator ran on the CPU.
--
-- needs: slices, tracks, roles, _log_fallbacks
-- empty without: roles.role=fallback or _log_fallbacks
-- column rank: INTEGER, distributed rank
-- column base: VARCHAR, operator without overload
-- column ts: BIGINT, start of the op in ns
-- column end: BIGINT, end in ns, including copies and waiting
-- column certain: BOOLEAN, whether the bridge recorded the fallback
WITH events AS (
    SELECT s.rank, t.tid, s.ts FROM slices AS s JOIN tracks AS t ON t.id = s.track
    WHERE s.name IN (SELECT name FROM roles WHERE role = 'fallback')
),
ops AS (
    SELECT s.id, s.rank, t.tid, s.name AS base, s.ts, s."end"
    FROM slices AS s JOIN tracks AS t ON t.id = s.track
    WHERE s.cat = 'cpu_op' AND s.side = 'host' AND contains(s.name, '::') AND s.outermost
),
recorded AS (
    SELECT DISTINCT o.id
    FROM events AS e
    ASOF JOIN (FROM ops WHERE rank IN (SELECT rank FROM events)) AS o ON o.rank = e.rank AND o.tid = e.tid AND e.ts >= o.ts
    WHERE e.ts <= o."end"
)
SELECT rank, base, ts, "end", true AS certain FROM ops SEMI JOIN recorded USING (id)
UNION ALL
SELECT rank, base, ts, "end", false FROM ops ANTI JOIN recorded USING (id) WHERE base IN (SELECT base FROM _log_fallbacks)
