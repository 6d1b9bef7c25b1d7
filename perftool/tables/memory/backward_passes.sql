-- One row per backward pass of a recording with memory events: a sequence of autograd ops that no other computing op of
-- a feeding thread interrupts.
--
-- needs: memory, slices, _name_roles, feeding_tracks
-- empty without: memory
-- column rank: INTEGER, distributed rank
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
WITH ops AS (
    SELECT s.rank, s.id, s.track, s.ts, s."end", list_contains(n.roles, 'backward') AS backward
    FROM slices AS s JOIN _name_roles AS n ON n.name = s.name AND n.cat = s.cat
    WHERE s.side = 'host' AND s.cat = 'cpu_op' AND s.outermost AND NOT is_step(s.name)
        AND NOT list_has_any(n.roles, ['bookkeeping', 'wrapper', 'autograd_wait'])
        AND s.rank IN (SELECT rank FROM memory)
),
relevant_ops AS (SELECT * FROM ops WHERE backward OR track IN (SELECT track FROM feeding_tracks)),
-- Recomputed ops and ops of hooks run inside autograd ops, and do not interrupt a pass.
reached AS (
    SELECT *, max(CASE WHEN backward THEN "end" END) OVER w AS reach
    FROM relevant_ops WINDOW w AS (PARTITION BY rank ORDER BY ts, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
numbered AS (
    SELECT rank, ts, "end", backward,
           count_if(NOT backward AND ts >= coalesce(reach, ts)) OVER (PARTITION BY rank ORDER BY ts, id) AS pass
    FROM reached
)
SELECT rank, min(ts) AS ts, max("end") AS "end" FROM numbered WHERE backward GROUP BY rank, pass
