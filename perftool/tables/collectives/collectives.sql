-- One row per collective on the device, or on the host when no device shows it (gloo, MPI).
--
-- needs: device_ops, _communication, roles, _vocabulary
-- empty without: device_ops.kind=collective or _communication
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column side: VARCHAR, 'device' or 'host'
-- column name: VARCHAR, operation, for example allreduce; the kernel's name when that is all there is
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, length in ns
-- column end: BIGINT, end in ns
-- column bytes: BIGINT, bytes sent by this rank, when recorded
-- column group_name: VARCHAR, process group, when recorded
-- column members: VARCHAR, ranks of the group as the trace lists them, when recorded
-- column dtype: VARCHAR, data type, when recorded
-- column operation: VARCHAR, all_reduce, all_gather, reduce_scatter, all_to_all, barrier or send_receive by its name; NULL for another one
-- column overlapped_ns: BIGINT, part of it during which compute ran on the same device
WITH device AS (
    SELECT d.id, d.rank, 'device' AS side, d.name AS kernel, d.ts, d."end", r.args
    FROM device_ops AS d JOIN raw AS r ON r.rowid = d.id
    WHERE d.kind = 'collective' AND d.valid
),
host AS (
    SELECT c.id, c.rank, 'host' AS side, c.name AS kernel, c.ts, c."end", r.args
    FROM _communication AS c JOIN raw AS r ON r.rowid = c.id
    WHERE c.name IN (SELECT name FROM roles WHERE role = 'host_collective') OR c.rank NOT IN (SELECT rank FROM device)
),
every AS (SELECT * FROM device UNION ALL SELECT * FROM host),
compute AS (
    SELECT rank, 0 AS class, ts, "end" FROM device_ops WHERE kind = 'kernel' AND valid
),
-- Time computed before each stretch of compute, so that the time computed until any moment is one lookup away.
computing AS (
    SELECT rank, ts, "end", sum("end" - ts) OVER (PARTITION BY rank ORDER BY ts) - ("end" - ts) AS before
    FROM interval_union(compute)
),
edges AS (
    SELECT id, rank, ts AS t, -1 AS sign FROM every WHERE side = 'device'
    UNION ALL SELECT id, rank, "end", 1 FROM every WHERE side = 'device'
),
hidden AS (
    SELECT e.id, sum(e.sign * (c.before + least(e.t, c."end") - c.ts))::BIGINT AS ns
    FROM edges AS e ASOF JOIN computing AS c ON c.rank = e.rank AND e.t >= c.ts
    GROUP BY e.id
),
named AS (SELECT *, coalesce(arg(args, 'Collective name'), kernel) AS name FROM every),
operations AS (
    SELECT n.name, min(v.role) AS operation
    FROM (SELECT DISTINCT name FROM named) AS n JOIN _vocabulary AS v ON v.subject = 'collective' AND lower(n.name) GLOB v.pattern
    GROUP BY n.name
)
SELECT e.id, e.rank, e.side, e.name,
       e.ts, e."end" - e.ts AS dur, e."end",
       -- NCCL's kernels name the number of elements; a host op has the shape of its first input.
       try_cast(coalesce(int_arg(e.args, 'In msg nelems'),
                 list_product(try_cast(json_extract(e.args, '$."Input Dims"[0]') AS BIGINT[])))
        * CASE lower(coalesce(arg(e.args, 'dtype'), json_extract_string(e.args, '$."Input type"[0]')))
           WHEN 'double' THEN 8 WHEN 'long' THEN 8 WHEN 'long int' THEN 8 WHEN 'float' THEN 4 WHEN 'int' THEN 4
           WHEN 'half' THEN 2 WHEN 'c10::half' THEN 2 WHEN 'bfloat16' THEN 2 WHEN 'c10::bfloat16' THEN 2 WHEN 'short' THEN 2
           WHEN 'char' THEN 1 WHEN 'byte' THEN 1 WHEN 'unsigned char' THEN 1 WHEN 'bool' THEN 1 END AS BIGINT) AS bytes,
       coalesce(arg(e.args, 'Process Group Name'), arg(e.args, 'Process Group Description')) AS group_name,
       arg(e.args, 'Process Group Ranks') AS members, arg(e.args, 'dtype') AS dtype, o.operation,
       CASE WHEN e.side = 'device' THEN coalesce(h.ns, 0) END AS overlapped_ns
FROM named AS e LEFT JOIN hidden AS h USING (id) LEFT JOIN operations AS o ON o.name = e.name
ORDER BY e.rank, e.ts
