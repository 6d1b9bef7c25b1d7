-- Gaudi: the host call that requested each transfer. The calls state direction and size, and the device lanes show the
-- times. If there are as many calls as transfers (per direction if both sides state it), they are paired in order;
-- otherwise, a transfer belongs to the last call before it.
--
-- needs: slices, tracks, roles, _device_work, _method_calls
-- empty without: roles.role=transfer, _device_work
-- column work: BIGINT, device event (slices.id)
-- column call: BIGINT, host call (slices.id)
-- column direction: VARCHAR, host_to_device, device_to_host or device_to_device
-- column bytes: BIGINT, bytes moved, when recorded
-- column op_name: VARCHAR, framework op around the call
-- column op_ts: BIGINT, start of the op in ns
-- column op_end: BIGINT, end of the op in ns
WITH calls AS (
    SELECT s.id, s.rank, t.tid, s.ts, s."end",
           CASE arg(r.args, 'direction') WHEN '0' THEN 'host_to_device' WHEN '1' THEN 'device_to_host'
                                         WHEN '2' THEN 'device_to_device' END AS direction,
           size_of(arg(r.args, 'size')) AS bytes
    FROM slices AS s JOIN raw AS r ON r.rowid = s.id JOIN tracks AS t ON t.id = s.track
    WHERE s.side = 'host' AND s.cat = 'runtime' AND s.name IN (SELECT name FROM roles WHERE cat = 'runtime' AND role = 'transfer')
        AND s.id NOT IN (SELECT id FROM _method_calls WHERE again)
),
transfers AS (
    SELECT id, rank, ts, direction FROM _device_work WHERE transfer AND engine IS NOT NULL AND set_aside IS NULL
),
silent AS (
    SELECT rank FROM calls WHERE direction IS NULL UNION SELECT rank FROM transfers WHERE direction IS NULL
),
requests AS (SELECT *, CASE WHEN rank NOT IN (SELECT rank FROM silent) THEN direction ELSE '' END AS way FROM calls),
made AS (SELECT *, CASE WHEN rank NOT IN (SELECT rank FROM silent) THEN direction ELSE '' END AS way FROM transfers),
equal AS (
    SELECT rank, way FROM (SELECT rank, way, count(*) AS n FROM requests GROUP BY ALL)
    JOIN (SELECT rank, way, count(*) AS n FROM made GROUP BY ALL) USING (rank, way, n)
),
in_order AS (
    SELECT m.id AS work, a.id AS call
    FROM (SELECT *, row_number() OVER (PARTITION BY rank, way ORDER BY ts, id) AS ordinal FROM made SEMI JOIN equal USING (rank, way)) AS m
    JOIN (SELECT *, row_number() OVER (PARTITION BY rank, way ORDER BY ts, id) AS ordinal FROM requests) AS a USING (rank, way, ordinal)
),
pairs AS (
    SELECT work, call FROM in_order
    UNION ALL
    SELECT m.id, a.id
    FROM (SELECT * FROM made ANTI JOIN equal USING (rank, way)) AS m
    ASOF JOIN requests AS a ON a.rank = m.rank AND a.way = m.way AND m.ts + clock_slack_ns() >= a.ts
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
