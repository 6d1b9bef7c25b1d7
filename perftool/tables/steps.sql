-- One row per profiler step, or one for the whole recording when there are none. The parts of the breakdown
-- exclude each other, in the order of the columns, and add up to the step.
--
-- needs: _step_bounds, slices, _names, _device_work, _communication
-- column rank: INTEGER, distributed rank
-- column step: INTEGER, number of the step; NULL when the recording has no steps
-- column name: VARCHAR, name of the annotation
-- column ts: BIGINT, start in ns, after the device work of the step before
-- column dur: BIGINT, length in ns
-- column end: BIGINT, end in ns, when the device work launched by the step is done
-- column host_ts: BIGINT, start of the annotation on the host
-- column host_end: BIGINT, end of the annotation on the host
-- column partial: BOOLEAN, cut by the window: left out of every per-step number
-- column kernel: BIGINT, ns in which a kernel ran
-- column memcpy: BIGINT, ns in which a copy ran and no kernel
-- column memset: BIGINT, ns of fills, nothing above
-- column communication: BIGINT, ns of collectives, nothing above
-- column runtime: BIGINT, ns of runtime calls, nothing above
-- column dataloader: BIGINT, ns of data loading, nothing above
-- column cpu_op: BIGINT, ns of framework ops, nothing above
-- column other: BIGINT, the rest of the step
WITH roles AS (
    SELECT d.rank, CASE WHEN c.external_id IS NOT NULL THEN 3 WHEN d.cat = 'kernel' THEN 0
                        WHEN d.cat = 'memcpy' THEN 1 ELSE 2 END AS class, d.ts, d."end"
    FROM _device_work AS d
    LEFT JOIN (SELECT DISTINCT rank, external_id FROM _communication WHERE external_id IS NOT NULL) AS c
        ON c.rank = d.rank AND c.external_id = d.external_id AND d.cat = 'kernel'
    WHERE d.set_aside IS NULL
    UNION ALL SELECT rank, 3, ts, "end" FROM _communication
    UNION ALL
    SELECT s.rank, n.role, s.ts, s."end"
    FROM slices AS s JOIN _names AS n ON n.name = s.name AND n.cat = s.cat
    WHERE s.side = 'host' AND n.role >= 4 AND (s.outermost OR n.role = 5)
),
merged AS (
    SELECT * FROM interval_union(roles)
    UNION ALL SELECT rank, -1, ts, "end" FROM _step_bounds
),
stretches AS (SELECT * FROM interval_sweep(merged)),
shares AS (
    SELECT b.rank, b.ordinal,
           sum(s."end" - s.ts) FILTER (s.mask & 1 = 1) AS kernel,
           sum(s."end" - s.ts) FILTER (s.mask & 3 = 2) AS memcpy,
           sum(s."end" - s.ts) FILTER (s.mask & 7 = 4) AS memset,
           sum(s."end" - s.ts) FILTER (s.mask & 15 = 8) AS communication,
           sum(s."end" - s.ts) FILTER (s.mask & 31 = 16) AS runtime,
           sum(s."end" - s.ts) FILTER (s.mask & 63 = 32) AS dataloader,
           sum(s."end" - s.ts) FILTER (s.mask & 127 = 64) AS cpu_op
    FROM stretches AS s
    JOIN _step_bounds AS b ON b.rank = s.rank AND s.ts >= b.ts AND s."end" <= b."end"
    GROUP BY b.rank, b.ordinal
)
SELECT b.rank, b.step, b.name, b.ts, b."end" - b.ts AS dur, b."end", b.host_ts, b.host_end, b.partial,
       coalesce(COLUMNS(['kernel', 'memcpy', 'memset', 'communication', 'runtime', 'dataloader', 'cpu_op']), 0)
           ::BIGINT,
       (b."end" - b.ts)
       - (coalesce(kernel, 0) + coalesce(memcpy, 0) + coalesce(memset, 0) + coalesce(communication, 0)
          + coalesce(runtime, 0) + coalesce(dataloader, 0) + coalesce(cpu_op, 0))::BIGINT AS other
FROM _step_bounds AS b
LEFT JOIN shares AS s USING (rank, ordinal)
ORDER BY b.rank, b.ordinal
