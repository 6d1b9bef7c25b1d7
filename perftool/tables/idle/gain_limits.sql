-- What a fix can give back at most, one row per rank, as shares of the window.
--
-- Work taken from the host shortens a step by the idle time of its device at most. Work taken from the device shortens
-- it by the time at most that the host is held up: inside waits, in calls that block because the queue is full, and
-- while it has nothing left to submit. A call counts as blocked when it takes ten times the median of its name and
-- more than 50 us, and the device works meanwhile.
--
-- needs: device_ops, device_busy, syncs, _runtime, _feeding_tracks, _step_totals
-- column rank: INTEGER, distributed rank
-- column host_ratio: DOUBLE, for fixes that relieve the host: the share of idle time
-- column device_ratio: DOUBLE, for fixes that relieve the device: the share of time in which the host is held up
WITH ranks AS (SELECT DISTINCT rank FROM device_ops WHERE valid),
typical AS (SELECT rank, name, median("end" - ts) AS ns FROM _runtime GROUP BY rank, name),
blocked AS (
    SELECT r.rank, r.track, r.ts, r."end" FROM _runtime AS r JOIN typical AS t ON t.rank = r.rank AND t.name = r.name
    WHERE r."end" - r.ts > greatest(10 * t.ns, 50000)
),
held AS (
    SELECT rank, track, ts, "end" FROM syncs UNION ALL SELECT rank, track, ts, "end" FROM blocked
),
classes AS (
    SELECT h.rank, 1 AS class, greatest(h.ts, t.host_ts) AS ts, least(h."end", t.host_end) AS "end"
    FROM held AS h JOIN _feeding_tracks AS f ON f.track = h.track JOIN _step_totals AS t ON t.rank = h.rank
    UNION ALL
    SELECT d.rank, 0, greatest(d.ts, t.host_ts), least(d."end", t.host_end)
    FROM device_ops AS d JOIN _step_totals AS t USING (rank) WHERE d.valid
),
united AS (SELECT * FROM interval_union(classes)),
waiting AS (
    SELECT rank, sum("end" - ts) FILTER (mask = 3) AS ns FROM interval_sweep(united) GROUP BY rank
),
busy AS (SELECT rank, sum(dur) AS ns FROM device_busy GROUP BY rank)
SELECT t.rank, greatest(0, 1 - coalesce(b.ns, 0) / t.ns) AS host_ratio,
       greatest(0, 1 - (t.host_end - t.host_ts - coalesce(w.ns, 0)) / t.ns) AS device_ratio
FROM _step_totals AS t
JOIN ranks USING (rank)
LEFT JOIN waiting AS w USING (rank)
LEFT JOIN busy AS b USING (rank)
WHERE t.ns > 0
