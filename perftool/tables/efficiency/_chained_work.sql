-- The kernels of one step, in order, on the rank's lane with the most kernel time. Used by _chain_places.
--
-- The step is the complete step of median length (of two, the shorter one), truncated after 50,000 kernels.
--
-- needs: device_ops, steps
-- empty without: device_ops
-- column id: BIGINT, device_ops.id
-- column rank: INTEGER, distributed rank
-- column kind: BIGINT, a number for each combination of a kernel and the op that launched it
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, duration in ns
WITH spans AS (
    SELECT rank, ts, "end" FROM (
        SELECT rank, ts, "end", row_number() OVER (PARTITION BY rank ORDER BY "end" - ts, ts, "end") AS place, count(*) OVER (PARTITION BY rank) AS steps
        FROM steps WHERE NOT partial
    ) WHERE place = (steps + 1) // 2
),
kernels AS (
    SELECT d.id, d.rank, d.track, d.name, d.op_name, d.ts, d.dur
    FROM device_ops AS d JOIN spans AS s ON s.rank = d.rank AND d.ts >= s.ts AND d.ts < s."end"
    WHERE d.valid AND d.kind = 'kernel'
),
lanes AS (
    SELECT rank, arg_max(track, (ns, -track)) AS track
    FROM (SELECT rank, track, sum(dur) AS ns FROM kernels GROUP BY ALL) GROUP BY rank
)
SELECT k.id, k.rank, dense_rank() OVER (ORDER BY k.name, k.op_name) AS kind, k.ts, k.dur
FROM kernels AS k JOIN lanes AS l ON l.rank = k.rank AND l.track = k.track
QUALIFY row_number() OVER (PARTITION BY k.rank ORDER BY k.ts, k.id) <= 50000
ORDER BY k.rank, k.ts, k.id
