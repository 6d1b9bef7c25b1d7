-- One row per collective on the device, or on the host if it has no device events (gloo, MPI).
--
-- needs: device_ops, launches, _communication, _name_roles, roles, _vocabulary
-- empty without: device_ops.kind=collective or _communication
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column side: VARCHAR, 'device' or 'host'
-- column name: VARCHAR, operation, for example allreduce; the kernel's name when no operation is recorded
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, duration in ns
-- column end: BIGINT, end in ns
-- column bytes: BIGINT, bytes sent by this rank, when recorded
-- column group_name: VARCHAR, process group, when recorded
-- column members: VARCHAR, ranks of the group, when recorded; PyTorch truncates lists of more than 30 ranks
-- column group_size: BIGINT, number of ranks in the group, when recorded
-- column dtype: VARCHAR, data type, when recorded
-- column operation: VARCHAR, all_reduce, all_gather, reduce_scatter, all_to_all, barrier or send_receive, according to the name; NULL for others
-- column together: BOOLEAN, whether the collective lasts until the last of its ranks has arrived; a call on the host may return earlier
-- column overlapped_ns: BIGINT, the part of dur in which compute ran on the same device; NULL if the trace does not show the device
-- column track: BIGINT, stream or host thread on which the collective ran
-- column called: BIGINT, start of the call that launched the collective, in ns, when recorded
-- column ready: BIGINT, time when the last work on this rank that the collective waits for ends, in ns; NULL if the trace does not show it
-- column source: INTEGER, sending rank, for a send or receive whose peer is recorded
-- column target: INTEGER, receiving rank
WITH device AS (
    SELECT id, rank, 'device' AS side, name AS kernel, op_name, ts, "end", track, launch FROM device_ops WHERE kind = 'collective' AND valid
),
host AS (
    SELECT id, rank, 'host' AS side, name AS kernel, NULL AS op_name, ts, "end", track, NULL AS launch FROM _communication
    WHERE name IN (SELECT name FROM roles WHERE role = 'host_collective') OR rank NOT IN (SELECT rank FROM device)
),
op_kinds AS (
    SELECT DISTINCT n.name FROM _name_roles AS n JOIN _vocabulary AS v ON v.subject = 'collective' AND lower(n.name) GLOB v.pattern
    WHERE n.cat IN ('user_annotation', 'cpu_op') AND list_contains(n.roles, 'process_group')
),
kernel_kinds AS (
    SELECT DISTINCT k.kernel AS name FROM (SELECT DISTINCT kernel FROM device) AS k
    JOIN _vocabulary AS v ON v.subject = 'collective' AND lower(k.kernel) GLOB v.pattern AND v.role <> 'send_receive'
),
-- Keep only the arguments that are needed, because lists of ranks are long.
every AS (
    SELECT c.* EXCLUDE (op_name), coalesce(arg(r.args, 'Collective name'), o.name, c.kernel) AS name,
           int_arg(r.args, 'In msg nelems') AS elements, try_cast(json_extract(r.args, '$."Input Dims"[0]') AS BIGINT[]) AS dims,
           lower(coalesce(arg(r.args, 'dtype'), json_extract_string(r.args, '$."Input type"[0]'))) AS type,
           coalesce(arg(r.args, 'Process Group Name'), arg(r.args, 'Process Group Description')) AS group_name,
           arg(r.args, 'dtype') AS dtype, listed_ranks(arg(r.args, 'Process Group Ranks')) AS members,
           coalesce(int_arg(r.args, 'Group size'),
                    nullif(json_array_length(list_json(arg(r.args, 'Process Group Ranks'))), 0)::BIGINT) AS group_size,
           try_cast(int_arg(r.args, 'Src Rank') AS INTEGER) AS source, try_cast(int_arg(r.args, 'Dst Rank') AS INTEGER) AS target
    FROM (SELECT * FROM device UNION ALL SELECT * FROM host) AS c JOIN raw AS r ON r.rowid = c.id
    -- Old kernel names (ncclKernel_SendRecv) do not identify the collective; the op that launched the kernel does.
    LEFT JOIN kernel_kinds AS k ON k.name = c.kernel
    LEFT JOIN op_kinds AS o ON o.name = c.op_name AND k.name IS NULL
),
-- By PyTorch's convention, a collective starts after all work that the model's stream received before the call.
computed AS (
    SELECT d.rank, d.track, l.ts, d."end" FROM device_ops AS d JOIN launches AS l ON l.id = d.launch
    WHERE d.valid AND d.kind <> 'collective' AND d.rank IN (SELECT rank FROM device)
),
model_streams AS (
    SELECT rank, arg_max(track, (n, -track)) AS track FROM (SELECT rank, track, count(*) AS n FROM computed GROUP BY rank, track) GROUP BY rank
),
model_stream_work AS (SELECT c.rank, c.ts, c."end" FROM computed AS c JOIN model_streams USING (rank, track)),
called AS (SELECT c.id, c.rank, c.ts, l.ts AS called, l."end" AS returned FROM device AS c JOIN launches AS l ON l.id = c.launch),
behind AS (
    SELECT c.id, c.called, least(c.ts, greatest(c.returned, coalesce(g."end", c.returned))) AS ready
    FROM called AS c ASOF LEFT JOIN model_stream_work AS g ON g.rank = c.rank AND c.called >= g.ts
),
compute AS (
    SELECT rank, 0 AS class, ts, "end" FROM device_ops WHERE kind = 'kernel' AND valid
),
-- Running total of compute time, so that the amount up to any moment can be looked up quickly.
computing AS (
    SELECT rank, ts, "end", sum("end" - ts) OVER (PARTITION BY rank ORDER BY ts) - ("end" - ts) AS before
    FROM interval_union(compute)
),
edges AS (
    SELECT id, rank, ts AS t, -1 AS sign FROM every UNION ALL SELECT id, rank, "end", 1 FROM every
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
       -- NCCL's kernels state the number of elements; a host op has the shape of its first input.
       size_of(coalesce(e.elements, list_product(e.dims))
        * CASE e.type WHEN 'double' THEN 8 WHEN 'long' THEN 8 WHEN 'long int' THEN 8 WHEN 'float' THEN 4 WHEN 'int' THEN 4
           WHEN 'half' THEN 2 WHEN 'c10::half' THEN 2 WHEN 'bfloat16' THEN 2 WHEN 'c10::bfloat16' THEN 2 WHEN 'short' THEN 2
           WHEN 'char' THEN 1 WHEN 'byte' THEN 1 WHEN 'unsigned char' THEN 1 WHEN 'bool' THEN 1 END) AS bytes,
       e.group_name, e.members, e.group_size, e.dtype, o.operation,
       e.side = 'device' OR e.name IN (SELECT name FROM roles WHERE role = 'host_collective') AS together,
       CASE WHEN e.rank IN (SELECT rank FROM device_ops WHERE valid) THEN coalesce(h.ns, 0) END AS overlapped_ns,
       e.track, b.called, b.ready,
       CASE WHEN e.target IS NOT NULL THEN e.rank ELSE e.source END AS source,
       CASE WHEN e.source IS NOT NULL THEN e.rank ELSE e.target END AS target
FROM every AS e LEFT JOIN hidden AS h USING (id) LEFT JOIN operations AS o ON o.name = e.name LEFT JOIN behind AS b USING (id)
ORDER BY e.rank, e.ts
