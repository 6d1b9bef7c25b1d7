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
-- column members: VARCHAR, ranks of the group, when recorded; of more than 30 the first and the last, as PyTorch lists them
-- column group_size: BIGINT, how many these are, when recorded
-- column dtype: VARCHAR, data type, when recorded
-- column operation: VARCHAR, all_reduce, all_gather, reduce_scatter, all_to_all, barrier or send_receive by its name; NULL for another one
-- column overlapped_ns: BIGINT, part of it during which compute ran on the same device
WITH device AS (
    SELECT id, rank, 'device' AS side, name AS kernel, ts, "end" FROM device_ops WHERE kind = 'collective' AND valid
),
host AS (
    SELECT id, rank, 'host' AS side, name AS kernel, ts, "end" FROM _communication
    WHERE name IN (SELECT name FROM roles WHERE role = 'host_collective') OR rank NOT IN (SELECT rank FROM device)
),
-- Only what is wanted of the arguments goes on: they are long, and each rank of a large group lists all others.
every AS (
    SELECT c.*, coalesce(arg(r.args, 'Collective name'), c.kernel) AS name,
           int_arg(r.args, 'In msg nelems') AS elements, try_cast(json_extract(r.args, '$."Input Dims"[0]') AS BIGINT[]) AS dims,
           lower(coalesce(arg(r.args, 'dtype'), json_extract_string(r.args, '$."Input type"[0]'))) AS type,
           coalesce(arg(r.args, 'Process Group Name'), arg(r.args, 'Process Group Description')) AS group_name,
           arg(r.args, 'dtype') AS dtype, listed_ranks(arg(r.args, 'Process Group Ranks')) AS members,
           coalesce(int_arg(r.args, 'Group size'),
                    nullif(json_array_length(list_json(arg(r.args, 'Process Group Ranks'))), 0)::BIGINT) AS group_size
    FROM (SELECT * FROM device UNION ALL SELECT * FROM host) AS c JOIN raw AS r ON r.rowid = c.id
),
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
operations AS (
    SELECT n.name, min(v.role) AS operation
    FROM (SELECT DISTINCT name FROM every) AS n JOIN _vocabulary AS v ON v.subject = 'collective' AND lower(n.name) GLOB v.pattern
    GROUP BY n.name
)
SELECT e.id, e.rank, e.side, e.name,
       e.ts, e."end" - e.ts AS dur, e."end",
       -- NCCL's kernels name the number of elements; a host op has the shape of its first input.
       try_cast(coalesce(e.elements, list_product(e.dims))
        * CASE e.type WHEN 'double' THEN 8 WHEN 'long' THEN 8 WHEN 'long int' THEN 8 WHEN 'float' THEN 4 WHEN 'int' THEN 4
           WHEN 'half' THEN 2 WHEN 'c10::half' THEN 2 WHEN 'bfloat16' THEN 2 WHEN 'c10::bfloat16' THEN 2 WHEN 'short' THEN 2
           WHEN 'char' THEN 1 WHEN 'byte' THEN 1 WHEN 'unsigned char' THEN 1 WHEN 'bool' THEN 1 END AS BIGINT) AS bytes,
       e.group_name, e.members, e.group_size, e.dtype, o.operation,
       CASE WHEN e.side = 'device' THEN coalesce(h.ns, 0) END AS overlapped_ns
FROM every AS e LEFT JOIN hidden AS h USING (id) LEFT JOIN operations AS o ON o.name = e.name
ORDER BY e.rank, e.ts
