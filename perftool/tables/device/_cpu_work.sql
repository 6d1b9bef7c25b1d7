-- The ops that compute, if the CPU is the device.
--
-- An op computes if the slices inside it take at most half of its time; these slices then count as part of the op. Ops
-- that only describe or allocate tensors do not compute. Ops of a data loader, a process group or a compilation do not
-- count, because their time is reported separately.
--
-- needs: ops, slices, _name_roles, _cpu_runs
-- empty without: _cpu_runs
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, tracks.id of its thread
-- column name: VARCHAR, name of the op
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
WITH names AS (
    SELECT name, cat, list_has_any(roles, ['dataloader', 'process_group', 'compile']) AS separate,
           cat = 'cpu_op' AND NOT separate AND (contains(name, '::') OR list_contains(roles, 'cpu_kernel'))
           AND NOT list_has_any(roles, ['bookkeeping', 'autograd', 'optimizer']) AS computes
    FROM _name_roles WHERE cat IN ('cpu_op', 'user_annotation')
),
candidates AS (
    SELECT o.id, o.rank, o.track, o.name, o.ts, o."end", n.separate
    FROM ops AS o JOIN (FROM _cpu_runs) AS r USING (rank) JOIN names AS n ON n.name = o.name AND n.cat = 'cpu_op'
    WHERE n.separate OR n.computes AND 2 * o.self_ns >= o.dur
    UNION ALL
    SELECT s.id, s.rank, s.track, s.name, s.ts, s."end", true
    FROM slices AS s JOIN (FROM _cpu_runs) AS r USING (rank) JOIN names AS n ON n.name = s.name AND n.cat = s.cat
    WHERE s.cat = 'user_annotation' AND n.separate
),
-- Slices of a thread nest, so a candidate is outermost if all earlier ones end before it starts.
outermost AS (
    SELECT *, max("end") OVER (PARTITION BY track ORDER BY ts, "end" DESC, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach
    FROM candidates
)
SELECT id, rank, track, name, ts, "end" FROM outermost WHERE NOT separate AND "end" > ts AND (reach IS NULL OR ts >= reach)
