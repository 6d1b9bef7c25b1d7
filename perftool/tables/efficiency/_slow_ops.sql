-- The ops of op_efficiency that could be much faster, each with one of its kernels. Used by op_shortfalls.
--
-- Only ops with at least 2 % of a rank's device work are considered. Convolution calls with the same filter count
-- together, because inputs of variable length, such as sentences, differ in shape from step to step.
--
-- needs: op_efficiency, _op_work, _op_bounds, device_ops, ops, windows, devices, _name_roles
-- empty without: _op_bounds.memory_ns
-- column rank: INTEGER, op_efficiency.rank
-- column name: VARCHAR, op_efficiency.name
-- column input_dims: VARCHAR, op_efficiency.input_dims
-- column input_types: VARCHAR, op_efficiency.input_types
-- column kind: VARCHAR, op_efficiency.kind
-- column calls: BIGINT, op_efficiency.calls
-- column kernel_ns: BIGINT, op_efficiency.kernel_ns
-- column bound: VARCHAR, op_efficiency.bound
-- column flops: DOUBLE, operations of all calls
-- column bytes: DOUBLE, bytes of all calls
-- column compute_ns: DOUBLE, operations of all calls / peak rate
-- column memory_ns: DOUBLE, bytes of all calls / bandwidth
-- column dtype: VARCHAR, _op_bounds.dtype
-- column device: VARCHAR, device_facts.device
-- column concrete_inputs: VARCHAR, scalar arguments of the calls with the most time
-- column outer_dims: VARCHAR, _op_work.outer_dims of the calls with the most time
-- column around: VARCHAR, _op_work.around of the calls with the most time
-- column grids: VARCHAR, _op_work.grids of the calls with the most time
-- column kernel: VARCHAR, name of the kernel with the most time, apart from kernels that only change a layout
-- column kernels: BIGINT, number of kernels that the calls launched, whatever their names
-- column layout_ns: BIGINT, time of the kernels that only change a layout
-- column fastest_ns: BIGINT, 10th percentile of the calls' kernel time
-- column slowest_ns: BIGINT, 90th percentile of the calls' kernel time
-- column args: VARCHAR, arguments of that kernel's longest run, as JSON
-- column units: INTEGER, compute units of the device
-- column capability: INTEGER, compute capability of the device, times 10
-- column ts: BIGINT, start of that kernel's longest run in ns
-- column dur: BIGINT, duration of that kernel's longest run in ns
WITH top AS (
    -- Grouping by numbers is faster than grouping by texts.
    SELECT row_number() OVER (ORDER BY rank, name, input_dims, input_types) AS number, rank, name, input_dims, input_types, kind, calls, kernel_ns, bound,
           flops * calls AS flops, bytes * calls AS bytes
    FROM op_efficiency
    WHERE source = 'op' AND input_dims IS NOT NULL AND roofline_ratio < 0.8
    QUALIFY sum(kernel_ns) OVER (PARTITION BY rank, name, CASE WHEN kind = 'convolution' THEN input_dims->>(CASE WHEN name LIKE '%backward' THEN '$[2]' ELSE '$[1]' END)
                                                               ELSE input_dims || input_types END) > 0.02 * sum(kernel_ns) OVER (PARTITION BY rank)
),
rated AS (
    SELECT w.rank, w.name, w.input_dims, w.input_types, coalesce(sum(b.compute_ns), 0) AS compute_ns, sum(b.memory_ns) AS memory_ns,
           arg_max(b.dtype, (w.kernel_ns, -w.id)) AS dtype, min(b.device) AS device, arg_max(w.concrete_inputs, (w.kernel_ns, -w.id)) AS concrete_inputs,
           arg_max(w.outer_dims, (w.kernel_ns, -w.id)) AS outer_dims,
           arg_max(w.around, (w.kernel_ns, -w.id)) AS around, arg_max(w.grids, (w.kernel_ns, -w.id)) AS grids
    FROM _op_work AS w JOIN _op_bounds AS b USING (id) WHERE w.source = 'op' AND w.name IN (SELECT name FROM top) GROUP BY ALL
),
callers AS (
    SELECT o.id, t.number FROM ops AS o JOIN top AS t USING (rank, name, input_dims, input_types)
),
work AS (
    SELECT c.number, c.id AS op, d.id, d.name AS kernel, d.ts, d.dur,
           coalesce(list_contains(n.roles, 'layout'), false) AS layout
    FROM device_ops AS d JOIN callers AS c ON c.id = d.op
    JOIN windows AS t ON t.rank = d.rank AND d.ts >= t.ts AND d.ts < t."end"
    LEFT JOIN _name_roles AS n ON n.name = d.name AND n.cat = 'kernel'
    WHERE d.valid AND d.kind = 'kernel'
),
named AS (
    SELECT number, kernel, sum(dur) AS ns, arg_max(id, (dur, -ts, -id)) AS longest
    FROM work WHERE NOT layout GROUP BY ALL
),
per_call AS (SELECT number, op, sum(dur) AS ns FROM work GROUP BY ALL),
varying AS (
    SELECT number, quantile_disc(ns, 0.1)::BIGINT AS fastest_ns, quantile_disc(ns, 0.9)::BIGINT AS slowest_ns
    FROM per_call GROUP BY ALL
),
counted AS (
    SELECT number, count(*) AS kernels, coalesce(sum(dur) FILTER (layout), 0)::BIGINT AS layout_ns
    FROM work GROUP BY ALL
),
main AS (
    SELECT number, arg_max(kernel, (ns, kernel)) AS kernel, arg_max(longest, (ns, kernel)) AS longest FROM named GROUP BY ALL
),
chips AS (SELECT rank, min(units)::INTEGER AS units, min(capability)::INTEGER AS capability FROM devices GROUP BY rank)
SELECT t.rank, t.name, t.input_dims, t.input_types, t.kind, t.calls, t.kernel_ns, t.bound, t.flops, t.bytes,
       r.compute_ns, r.memory_ns, r.dtype, r.device, r.concrete_inputs, r.outer_dims, r.around, r.grids,
       m.kernel, c.kernels, c.layout_ns, v.fastest_ns, v.slowest_ns, a.args::VARCHAR AS args, p.units, p.capability, d.ts, d.dur
FROM top AS t
JOIN rated AS r USING (rank, name, input_dims, input_types)
JOIN main AS m USING (number)
JOIN counted AS c USING (number)
JOIN varying AS v USING (number)
JOIN device_ops AS d ON d.id = m.longest
JOIN raw AS a ON a.rowid = m.longest
LEFT JOIN chips AS p USING (rank)
ORDER BY t.rank, t.kernel_ns DESC, t.name, t.input_dims, t.input_types
