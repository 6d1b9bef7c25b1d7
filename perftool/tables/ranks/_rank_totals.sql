-- The contribution of each rank to the summary. Times are clipped to the rank's window. BOOLEAN columns show what the
-- rank's trace contains, so that missing data does not count as 0.
--
-- needs: steps, _timeline, _mask_meanings, windows, device_windows, device_ops, device_busy, dataloader, compilations, syncs, memory, copies, slices, roles, _runtime, tracks, _extents, lost_kernels
-- empty without: tracks
-- column rank: INTEGER, distributed rank
-- column window_ns: BIGINT, duration of the window, NULL if there is none
-- column recorded_ns: BIGINT, time from the first to the last activity of the recording, on the host or the device, NULL if no activity has a duration
-- column unknown_ns: BIGINT, the part of window_ns in which the trace does not show the device, NULL if there is no device work
-- column steps: BIGINT, number of complete steps; 1 for a recording without steps
-- column busy_ns: BIGINT, time while the device works; NULL if there is no device work in the whole recording
-- column compute_ns: BIGINT, time while a kernel other than a collective runs
-- column collective_ns: BIGINT, time while a collective runs
-- column exposed_ns: BIGINT, time while a collective runs and no other kernel does; NULL if the device's state is unknown
-- column kernel_ns: BIGINT, time while any kernel runs
-- column loading_ns: BIGINT, time while a feeding thread waits for data
-- column compiling_ns: BIGINT, time while a feeding thread compiles or waits for a compiler
-- column copying_ns: BIGINT, time while the host copies inputs
-- column overlap_ns: BIGINT, time while a feeding thread and the device work at the same time
-- column compilations: BIGINT, number of compilations that begin in the window
-- column syncs: BIGINT, number of waits for the device that begin in the window
-- column peak_bytes: BIGINT, peak of allocated device memory, NULL when not recorded
-- column lost_kernels_ratio: DOUBLE, lost_kernels.ratio, NULL if there are no kernel launches
-- column host: BOOLEAN, whether the trace contains host slices
-- column device: BOOLEAN, whether the trace contains device work
-- column loader: BOOLEAN, whether the trace shows data loading
-- column inputs: BOOLEAN, whether the trace contains copies from host to device
-- column runtime: BOOLEAN, whether the trace contains calls into the device's runtime
WITH masks AS (
    SELECT t.rank, t.mask, sum(t."end" - t.ts) AS ns
    FROM _timeline AS t JOIN windows AS w ON w.rank = t.rank AND t.ts >= w.ts AND t."end" <= w."end" GROUP BY t.rank, t.mask
),
moments AS (SELECT m.rank, m.ns, s.* FROM masks AS m JOIN _mask_meanings AS s USING (mask)),
times AS (
    SELECT rank, sum(ns) FILTER (computing) AS compute, sum(ns) FILTER (communicating) AS collective,
           sum(ns) FILTER (communicating AND NOT computing) AS exposed,
           sum(ns) FILTER (computing OR communicating) AS kernel, sum(ns) FILTER (loading) AS loading,
           sum(ns) FILTER (compiling) AS compiling, sum(ns) FILTER (copying_inputs) AS copying,
           sum(ns) FILTER (device IS NOT NULL AND host_works) AS overlap
    FROM moments GROUP BY rank
),
-- Gaudi's bridge makes a separate call for a copy, which the trace shows even if no lane shows the transfer.
input_calls AS (
    SELECT DISTINCT rank FROM slices
    WHERE cat = 'runtime' AND name IN (SELECT name FROM roles WHERE cat = 'runtime' AND role = 'copy_in')
),
-- Work that was set aside because it outlasts the host's events counts here: the device may simply be slow.
-- Asynchronous events, unpaired begins and ends, and slices of an unknown category may also show that the run went on.
recorded AS (
    SELECT rank, max("end") - min(ts) AS ns
    FROM (SELECT rank, host_ts AS ts, host_end AS "end" FROM _extents UNION ALL SELECT rank, ts, "end" FROM device_ops WHERE set_aside IS DISTINCT FROM 'impossible length' AND dur > 0
          UNION ALL SELECT rank, ts, "end" FROM slices WHERE side = 'device' AND id NOT IN (SELECT id FROM device_ops WHERE set_aside = 'impossible length')
          UNION ALL SELECT rank, ts, ts FROM raw WHERE ph IN ('B', 'E', 'b', 'n', 'e', 'S', 'T', 'p', 'F') AND ts IS NOT NULL)
    GROUP BY rank HAVING max("end" - ts) > 0
),
-- Collect the numbers in one list, because joining each of them to the ranks would dominate the time for a small trace.
numbers AS (
    SELECT rank, 'busy' AS number, sum(dur)::BIGINT AS value FROM device_busy GROUP BY rank
    UNION ALL SELECT rank, 'steps', count(*) FROM steps WHERE NOT partial GROUP BY rank
    UNION ALL SELECT c.rank, 'compilations', count(*) FROM compilations AS c
        JOIN windows AS w ON w.rank = c.rank AND c.ts >= w.ts AND c.ts < w."end" GROUP BY c.rank
    UNION ALL SELECT s.rank, 'syncs', count(*) FROM syncs AS s
        JOIN windows AS w ON w.rank = s.rank AND s.ts >= w.ts AND s.ts < w."end" GROUP BY s.rank
    UNION ALL SELECT rank, 'peak', max(allocated) FROM memory WHERE device_type > 0 GROUP BY rank
    UNION ALL SELECT rank, 'recorded', ns FROM recorded
    UNION ALL SELECT DISTINCT rank, 'host', 1 FROM slices WHERE side = 'host'
    UNION ALL SELECT DISTINCT rank, 'device', 1 FROM device_ops WHERE valid
    UNION ALL SELECT DISTINCT rank, 'loader', 1 FROM dataloader
    UNION ALL SELECT DISTINCT rank, 'inputs', 1 FROM copies WHERE direction = 'host_to_device'
    UNION ALL SELECT rank, 'inputs', 1 FROM input_calls
    UNION ALL SELECT DISTINCT rank, 'runtime', 1 FROM _runtime
),
found AS (
    SELECT rank, max(value) FILTER (number = 'busy') AS busy, max(value) FILTER (number = 'steps') AS steps,
           max(value) FILTER (number = 'compilations') AS compilations, max(value) FILTER (number = 'syncs') AS syncs,
           max(value) FILTER (number = 'peak') AS peak, max(value) FILTER (number = 'recorded') AS recorded,
           bool_or(number = 'host') AS host, bool_or(number = 'device') AS device, bool_or(number = 'loader') AS loader,
           bool_or(number = 'inputs') AS inputs, bool_or(number = 'runtime') AS runtime
    FROM numbers GROUP BY rank
)
SELECT r.rank, (w."end" - w.ts)::BIGINT AS window_ns, f.recorded AS recorded_ns, k.unknown_ns, coalesce(f.steps, 0) AS steps,
       CASE WHEN f.device THEN coalesce(f.busy, 0) END AS busy_ns,
       t.compute::BIGINT AS compute_ns, t.collective::BIGINT AS collective_ns,
       CASE WHEN k."end" > k.ts THEN t.exposed::BIGINT END AS exposed_ns,
       t.kernel::BIGINT AS kernel_ns, coalesce(t.loading, 0)::BIGINT AS loading_ns,
       coalesce(t.compiling, 0)::BIGINT AS compiling_ns, coalesce(t.copying, 0)::BIGINT AS copying_ns,
       coalesce(t.overlap, 0)::BIGINT AS overlap_ns, coalesce(f.compilations, 0) AS compilations, coalesce(f.syncs, 0) AS syncs,
       f.peak AS peak_bytes, x.ratio AS lost_kernels_ratio, coalesce(f.host, false) AS host, coalesce(f.device, false) AS device,
       coalesce(f.loader, false) AS loader, coalesce(f.inputs, false) AS inputs, coalesce(f.runtime, false) AS runtime
FROM (SELECT DISTINCT rank FROM tracks) AS r
LEFT JOIN windows AS w USING (rank)
LEFT JOIN device_windows AS k USING (rank)
LEFT JOIN times AS t USING (rank)
LEFT JOIN found AS f USING (rank)
LEFT JOIN lost_kernels AS x USING (rank)
ORDER BY r.rank
