-- What the threads that feed the device do, in classes of falling priority. When several apply at once the
-- first one explains an idle device.
--
-- needs: slices, _feeding_tracks, compilations, syncs
-- column rank: INTEGER, distributed rank
-- column class: INTEGER, 0 compile, 1 fallback, 2 data loading, 3 collective, 4 synchronisation, 5 copy, 6 graph build, 8 optimizer, 9 launch call, 10 framework op, 11 Python (7 is the wait after a launch)
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
WITH host AS (
    SELECT s.id, s.rank, s.name, s.cat, s.ts, s."end" FROM slices AS s
    JOIN _feeding_tracks AS f ON f.track = s.track
    WHERE s.side = 'host'
),
classified AS (
    SELECT rank, ts, "end",
           CASE WHEN name = 'cpu_fallback' THEN 1
                WHEN cat IN ('cpu_op', 'user_annotation') AND is_dataloader(name) THEN 2
                WHEN cat IN ('cpu_op', 'user_annotation')
                     AND regexp_matches(name, '^(c10d::|nccl:|gloo:|hccl:|record_param_comms)') THEN 3
                WHEN cat = 'runtime' AND regexp_matches(name, 'memcpy|MemCopy|copy_hpu_lazy', 'i') THEN 5
                WHEN regexp_matches(name, '^(SyncTensorsGraphInternal|SyncLiveTensorsGraph|RunPostOrder)') THEN 6
                WHEN starts_with(name, 'Optimizer.step#') OR starts_with(name, 'Optimizer.zero_grad#') THEN 8
                WHEN cat = 'runtime' THEN 9
                WHEN cat IN ('cpu_op') AND NOT starts_with(name, 'ProfilerStep#') THEN 10
                WHEN cat = 'python_function' THEN 11 END AS class
    FROM host
)
SELECT rank, class, ts, "end" FROM classified WHERE class IS NOT NULL
UNION ALL
SELECT rank, 0, ts, "end" FROM compilations WHERE ts IS NOT NULL
UNION ALL
SELECT s.rank, 4, s.ts, s."end" FROM syncs AS s JOIN _feeding_tracks AS f ON f.track = s.track
