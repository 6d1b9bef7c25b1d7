-- Upper bounds on the gain of a fix, one row per rank, as shares of the window.
--
-- Less host work shortens a step by at most the idle time of the device. Less device work shortens it by at most the
-- time the host is blocked while the device works: in waits, in calls that block because the queue is full, and after
-- its last submission. A call counts as blocked if it takes more than 50 us and more than ten times the median call of
-- its name. If the CPU is the device, its work blocks its own thread.
--
-- No gains for steady steps are calculated for a rank if process start-up or graph capture leaves the device idle for
-- more than 20 % of the window, or if most events or many kernels are missing.
--
-- needs: device_ops, gap_causes, syncs, _runtime, feeding_tracks, windows, launches, op_numbers, lost_kernels
-- empty without: device_ops
-- column rank: INTEGER, distributed rank
-- column host_ratio: DOUBLE, for fixes that relieve the host: idle time in the steady phase as a share of the window
-- column unsteady: VARCHAR, why no gains for steady steps are calculated for the rank; NULL if they are calculated
-- column reported_by: VARCHAR, code of the rule that reports this reason; NULL if there is none
-- column device_ratio: DOUBLE, for fixes that relieve the device: share of the window for which the host is blocked; NULL when the trace does not show the host's submissions
WITH ranks AS (SELECT DISTINCT rank FROM device_ops WHERE valid),
-- After the last submission of a recording, the host has nothing left to submit.
submitting AS (
    SELECT l.rank, t.host_ts AS ts, max(l."end") AS "end"
    FROM launches AS l JOIN windows AS t ON t.rank = l.rank AND l.ts >= t.host_ts AND l.ts < t.host_end
    GROUP BY l.rank, t.host_ts
),
typical AS (SELECT rank, name, median("end" - ts) AS ns FROM _runtime GROUP BY rank, name),
blocked AS (
    SELECT r.rank, r.track, r.ts, r."end" FROM _runtime AS r JOIN typical AS t ON t.rank = r.rank AND t.name = r.name
    WHERE r."end" - r.ts > greatest(10 * t.ns, 50000)
),
held AS (
    SELECT rank, track, ts, "end" FROM syncs UNION ALL SELECT rank, track, ts, "end" FROM blocked
    UNION ALL SELECT rank, track, ts, "end" FROM device_ops WHERE op = id
),
classes AS (
    SELECT h.rank, 1 AS class, greatest(h.ts, s.ts) AS ts, least(h."end", s."end") AS "end"
    FROM held AS h JOIN feeding_tracks AS f ON f.track = h.track JOIN submitting AS s ON s.rank = h.rank
    UNION ALL
    SELECT d.rank, 0, greatest(d.ts, s.ts), least(d."end", s."end")
    FROM device_ops AS d JOIN submitting AS s USING (rank) WHERE d.valid AND d.kind <> 'wait'
),
united AS (SELECT * FROM interval_union(classes)),
waiting AS (
    SELECT rank, sum("end" - ts) FILTER (mask = 3) AS ns FROM interval_sweep(united) GROUP BY rank
),
idle AS (
    SELECT rank, sum(dur) FILTER (phase = 'steady') AS ns, sum(dur) AS whole, sum(dur) FILTER (phase = 'startup') AS start_up,
           sum(dur) FILTER (phase = 'capture') AS capture
    FROM gap_causes GROUP BY rank
)
-- A device that is idle throughout the window does not wait for the host, so relieving the host gains nothing.
SELECT t.rank, CASE WHEN i.whole >= t.dur THEN 0 ELSE coalesce(i.ns, 0) / t.dur END AS host_ratio,
       CASE WHEN n.thinned THEN 'most events are missing from the recording'
            WHEN x.many THEN 'many kernels are missing from the recording'
            WHEN i.capture > 0.2 * t.dur THEN 'the recording contains graph capture'
            WHEN i.start_up > 0.2 * t.dur THEN 'the recording contains the start-up of the process' END AS unsteady,
       CASE WHEN n.thinned THEN 'TRC109' WHEN x.many THEN 'TRC113' WHEN unsteady IS NOT NULL THEN 'STP103' END AS reported_by,
       CASE WHEN s.rank IS NOT NULL THEN greatest(0, 1 - (s."end" - s.ts - coalesce(w.ns, 0)) / t.dur) END AS device_ratio
FROM windows AS t
JOIN ranks USING (rank)
LEFT JOIN submitting AS s USING (rank)
LEFT JOIN waiting AS w ON w.rank = t.rank
LEFT JOIN idle AS i ON i.rank = t.rank
LEFT JOIN op_numbers AS n ON n.rank = t.rank
LEFT JOIN lost_kernels AS x ON x.rank = t.rank
WHERE t.dur > 0
