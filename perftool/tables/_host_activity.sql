-- What the threads that feed the device do, in classes of falling priority. When several apply at once the
-- first one explains an idle device.
--
-- needs: slices, _feeding_tracks, compilations, syncs
-- column rank: INTEGER, distributed rank
-- column class: INTEGER, 0 compile, 1 fallback, 2 data loading, 3 collective, 4 synchronisation, 5 copy, 6 graph build, 7 optimizer, 8 launch call, 9 framework op, 10 Python
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
WITH host AS (
    SELECT s.rank, s.name, s.cat, s.ts, s."end", s.outermost FROM slices AS s
    JOIN _feeding_tracks AS f ON f.track = s.track
    WHERE s.side = 'host' AND s.cat IN ('cpu_op', 'user_annotation', 'runtime', 'python_function')
),
classified AS (
    SELECT rank, ts, "end",
           CASE WHEN name = 'cpu_fallback' THEN 1
                WHEN cat IN ('cpu_op', 'user_annotation') AND is_dataloader(name) THEN 2
                WHEN cat IN ('cpu_op', 'user_annotation')
                     AND regexp_matches(name, '^(c10d::|nccl:|gloo:|hccl:|record_param_comms)') THEN 3
                WHEN cat = 'runtime' AND regexp_matches(name, 'memcpy|MemCopy|copy_hpu_lazy', 'i') THEN 5
                WHEN regexp_matches(name, '^(SyncTensorsGraphInternal|SyncLiveTensorsGraph|RunPostOrder)') THEN 6
                WHEN starts_with(name, 'Optimizer.step#') OR starts_with(name, 'Optimizer.zero_grad#') THEN 7
                WHEN cat = 'runtime' THEN 8
                WHEN cat = 'cpu_op' AND NOT starts_with(name, 'ProfilerStep#') THEN 9
                WHEN cat = 'python_function' THEN 10 END AS class, outermost
    FROM host
)
-- Ops inside ops and Python inside Python add nothing.
SELECT rank, class, ts, "end" FROM classified WHERE class < 8 OR (class >= 8 AND outermost)
UNION ALL
SELECT rank, 0, ts, "end" FROM compilations WHERE ts IS NOT NULL
UNION ALL
SELECT s.rank, 4, s.ts, s."end" FROM syncs AS s JOIN _feeding_tracks AS f ON f.track = s.track
