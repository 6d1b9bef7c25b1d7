-- Gaudi: which host call asked for which transfer. The calls know direction and size, the device lanes the time.
-- They are paired in order when there are equally many, else a transfer belongs to the last call before it.
--
-- needs: slices, tracks, roles, _device_work
-- empty without: roles.role=transfer, _device_work
-- column work: BIGINT, device event (slices.id)
-- column call: BIGINT, host call (slices.id)
-- column direction: VARCHAR, host_to_device, device_to_host or device_to_device
-- column bytes: BIGINT, bytes moved, when the call says
-- column op_name: VARCHAR, framework op around the call
-- column op_ts: BIGINT, start of that op in ns
-- column op_end: BIGINT, end of that op in ns
WITH calls AS (
    SELECT s.id, s.rank, t.tid, s.ts, s."end",
           CASE arg(r.args, 'direction') WHEN '0' THEN 'host_to_device' WHEN '1' THEN 'device_to_host'
                                         WHEN '2' THEN 'device_to_device' END AS direction,
           int_arg(r.args, 'size') AS bytes, row_number() OVER (PARTITION BY s.rank ORDER BY s.ts, s.id) AS ordinal
    FROM slices AS s JOIN raw AS r ON r.rowid = s.id JOIN tracks AS t ON t.id = s.track
    WHERE s.side = 'host' AND s.cat = 'runtime' AND s.name IN (SELECT name FROM roles WHERE cat = 'runtime' AND role = 'transfer')
),
transfers AS (
    SELECT id, rank, ts, row_number() OVER (PARTITION BY rank ORDER BY ts, id) AS ordinal
    FROM _device_work WHERE transfer AND engine IS NOT NULL AND set_aside IS NULL
),
paired_ranks AS (
    SELECT rank FROM (SELECT rank, count(*) AS n FROM calls GROUP BY rank)
    JOIN (SELECT rank, count(*) AS n FROM transfers GROUP BY rank) USING (rank, n)
),
pairs AS (
    SELECT t.id AS work, c.id AS call
    FROM transfers AS t JOIN paired_ranks USING (rank) JOIN calls AS c ON c.rank = t.rank AND c.ordinal = t.ordinal
    UNION ALL
    SELECT t.id, c.id
    FROM (SELECT * FROM transfers ANTI JOIN paired_ranks USING (rank)) AS t
    ASOF JOIN calls AS c ON c.rank = t.rank AND t.ts + clock_slack_ns() >= c.ts
),
ops AS (
    SELECT s.rank, t.tid, s.name, s.ts, s."end" FROM slices AS s JOIN tracks AS t ON t.id = s.track
    WHERE s.side = 'host' AND s.cat = 'cpu_op' AND s.outermost AND s.rank IN (SELECT rank FROM calls)
),
around AS (
    SELECT c.id, o.name, o.ts, o."end" FROM calls AS c ASOF JOIN ops AS o ON o.rank = c.rank AND o.tid = c.tid AND c.ts >= o.ts
    WHERE o."end" >= c."end"
)
SELECT p.work, p.call, c.direction, c.bytes, a.name AS op_name, a.ts AS op_ts, a."end" AS op_end
FROM pairs AS p JOIN calls AS c ON c.id = p.call LEFT JOIN around AS a ON a.id = c.id
