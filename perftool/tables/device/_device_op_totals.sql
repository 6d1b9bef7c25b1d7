-- Time of each rank's device work inside the window, by name. If several lanes run the same kernel at the same time,
-- that time counts once, so no total exceeds the window. Kernels that only wait are left out.
--
-- needs: device_ops, windows
-- empty without: device_ops
-- column rank: INTEGER, distributed rank
-- column name: VARCHAR, name of the kernel or copy
-- column total_ns: BIGINT, time of the work
-- column count: BIGINT, number of units of work
WITH work AS (
    SELECT d.rank, d.name, greatest(d.ts, w.ts) AS ts, least(d."end", w."end") AS "end"
    FROM device_ops AS d JOIN windows AS w ON w.rank = d.rank AND d.ts < w."end" AND d."end" > w.ts
    WHERE d.valid AND d.kind <> 'wait'
),
numbers AS (SELECT name, row_number() OVER (ORDER BY name)::INTEGER AS class FROM work GROUP BY name),
named AS (SELECT w.rank, n.class, w.ts, w."end" FROM work AS w JOIN numbers AS n USING (name)),
counted AS (SELECT rank, name, count(*) AS count FROM work GROUP BY rank, name)
SELECT c.rank, c.name, u.ns AS total_ns, c.count
FROM interval_lengths(named) AS u
JOIN numbers AS n USING (class)
JOIN counted AS c ON c.rank = u.rank AND c.name = n.name
