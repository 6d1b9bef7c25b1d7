-- Links from device work to the host call that submitted it. Each unit of work has one call. If several calls have its
-- id (the counter may restart), it is the last of them before the work. An op that the CPU computes counts as its own
-- call.
--
-- needs: _device_work, _runtime, _recipe_links, _synapse_copies, _cpu_work
-- empty without: _device_work, _runtime or _cpu_work
-- column rank: INTEGER, distributed rank
-- column launch: BIGINT, host call (slices.id)
-- column work: BIGINT, unit of device work (slices.id)
WITH calls AS (
    SELECT rank, correlation, min(id) AS any_of_them, count(*) AS calls
    FROM _runtime WHERE correlation IS NOT NULL GROUP BY rank, correlation
),
called AS (
    SELECT w.rank, w.correlation, w.id AS work, w.ts + clock_slack_ns() AS ts, c.any_of_them, c.calls
    FROM _device_work AS w JOIN calls AS c ON c.rank = w.rank AND c.correlation = w.correlation
    WHERE w.set_aside IS NULL
),
repeated AS (SELECT id, rank, correlation, ts FROM _runtime SEMI JOIN (FROM calls WHERE calls > 1) AS m USING (rank, correlation)),
first_ones AS (SELECT rank, correlation, arg_min(id, (ts, id)) AS id FROM repeated GROUP BY rank, correlation)
SELECT rank, any_of_them AS launch, work FROM called WHERE calls = 1
UNION ALL
SELECT c.rank, coalesce(r.id, f.id), c.work
FROM (FROM called WHERE calls > 1) AS c
JOIN first_ones AS f USING (rank, correlation)
ASOF LEFT JOIN repeated AS r ON r.rank = c.rank AND r.correlation = c.correlation AND c.ts >= r.ts
UNION ALL
SELECT rank, launch, work FROM _recipe_links
UNION ALL
SELECT w.rank, c.call, c.work FROM _synapse_copies AS c JOIN _device_work AS w ON w.id = c.work
UNION ALL
SELECT rank, id, id FROM _cpu_work
