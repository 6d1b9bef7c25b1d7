-- The part of the window in which the trace shows the device's activity.
--
-- The device's state before its first recorded work is unknown in two cases: that work was submitted before the
-- recording, or it started more than a millisecond after its submission, so the device was busy with unrecorded work.
-- Otherwise the queue was empty and the device idle. A copy counts as submitted when its call begins, because the call
-- may wait for the copy.
--
-- The state is also unknown at the end of a recording if device events are missing there. A call or op without device
-- work is evidence of this if it follows the last call with device work, and if at least 90 % of the earlier calls of
-- its name have device work. The unknown part begins at the first such call or op, or when the recorded device work
-- ends, if that is later. Calls after a wait for the device do not count, because later work may run on the host. If
-- most events, or many kernels, are missing, the state is unknown in the whole window.
--
-- needs: windows, device_ops, launches, _runtime, ops, syncs, op_numbers, lost_kernels, _cpu_runs
-- empty without: device_ops
-- column rank: INTEGER, distributed rank
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
-- column unknown_ns: BIGINT, the rest of the window
WITH work AS (SELECT rank, ts, "end", kind, launch, op FROM device_ops WHERE valid AND kind <> 'wait'),
reach AS (SELECT rank, min(ts) AS ts, max("end") AS "end" FROM work GROUP BY rank),
begun AS (
    SELECT f.rank, f.ts, min(CASE WHEN d.kind = 'memcpy' THEN l.ts ELSE l."end" END) AS submitted
    FROM reach AS f
    JOIN work AS d ON d.rank = f.rank AND d.ts = f.ts
    LEFT JOIN launches AS l ON l.id = d.launch
    GROUP BY f.rank, f.ts
),
last_launches AS (
    SELECT l.rank, l.ts, min(y."end") AS waited
    FROM (SELECT rank, max(ts) AS ts FROM launches GROUP BY rank) AS l LEFT JOIN syncs AS y ON y.rank = l.rank AND y."end" > l.ts
    GROUP BY l.rank, l.ts
),
calls AS (
    SELECT rank, id, name, ts, id IN (SELECT id FROM launches) AS works FROM _runtime
    WHERE name IN (SELECT name FROM launches)
    UNION ALL
    SELECT rank, id, name, ts, id IN (SELECT op FROM work) FROM ops WHERE id IN (SELECT op FROM work)
        OR name IN (SELECT o.name FROM ops AS o JOIN work AS w ON w.op = o.id)
),
usual AS (
    SELECT c.rank, c.name FROM calls AS c JOIN last_launches AS l ON l.rank = c.rank AND c.ts <= l.ts
    GROUP BY c.rank, c.name HAVING count(*) FILTER (c.works) >= 0.9 * count(*)
),
lost AS (
    SELECT c.rank, min(c.ts) AS ts FROM calls AS c JOIN usual USING (rank, name) JOIN last_launches AS l USING (rank)
    WHERE c.ts > l.ts AND NOT c.works AND c.rank NOT IN (FROM _cpu_runs) AND (l.waited IS NULL OR c.ts < l.waited) GROUP BY c.rank
),
known AS (
    SELECT w.rank, w.ts AS window_ts, w."end" AS window_end,
           -- If the trace shows no submissions, the device's state counts as known from the start.
           CASE WHEN b.ts > w.ts AND b.rank IN (SELECT DISTINCT rank FROM launches)
                    AND (b.submitted IS NULL OR b.ts - b.submitted > 1000000)
                THEN least(b.ts, w."end") ELSE w.ts END AS ts,
           least(w."end", greatest(w.ts, r."end", l.ts)) AS lost_ts, l.rank IS NOT NULL AS loses,
           coalesce(n.thinned, false) OR coalesce(x.many, false) AS thinned
    FROM windows AS w JOIN begun AS b USING (rank) JOIN reach AS r USING (rank)
    LEFT JOIN lost AS l USING (rank) LEFT JOIN op_numbers AS n USING (rank) LEFT JOIN lost_kernels AS x USING (rank)
),
shown AS (
    SELECT rank, window_ts, window_end, ts,
           CASE WHEN thinned THEN ts WHEN loses THEN greatest(ts, lost_ts) ELSE window_end END AS "end"
    FROM known
)
SELECT rank, ts, "end", (window_end - window_ts) - ("end" - ts) AS unknown_ns FROM shown
