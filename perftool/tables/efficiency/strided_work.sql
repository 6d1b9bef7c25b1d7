-- One row per unit of device work of a CPU run, inside the complete steps, that exists only, or takes long, because a
-- tensor is not contiguous.
--
-- A copy counts if its two tensors have their dimensions in different orders in memory, as after transpose(), permute()
-- or channels_last. Another op counts if it was repeated after the recording and took less than two thirds of the time
-- with contiguous operands. Expanded tensors do not count.
--
-- absent: the CPU is not the device, or strides are not recorded (record_shapes=True)
-- needs: ops, device_ops, windows, repeated_work, _cpu_runs
-- empty without: _cpu_runs
-- column id: BIGINT, device_ops.id
-- column rank: INTEGER, distributed rank
-- column op_name: VARCHAR, name of the op
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, duration in ns
-- column lost_ns: DOUBLE, time that the work would not take with contiguous tensors, in ns: all of it for a copy
WITH copies AS (
    SELECT d.id, d.rank, d.ts, d.dur, json_extract(o.input_dims, ['$[0]', '$[1]']) AS sizes,
           json_extract(r.args, ['$."Input Strides"[0]', '$."Input Strides"[1]']) AS strides
    FROM device_ops AS d JOIN ops AS o ON o.id = d.op JOIN _cpu_runs AS u ON u.rank = d.rank JOIN raw AS r ON r.rowid = o.id
    JOIN windows AS w ON w.rank = d.rank AND d.ts >= w.ts AND d.ts < w."end"
    WHERE d.valid AND o.name = 'aten::copy_' AND (o.input_types->>'$[0]') = (o.input_types->>'$[1]')
),
kinds AS (
    SELECT sizes, strides, try_cast(sizes[1] AS BIGINT[]) AS size, try_cast(strides[1] AS BIGINT[]) AS target, try_cast(strides[2] AS BIGINT[]) AS source
    FROM (SELECT DISTINCT sizes, strides FROM copies WHERE sizes[1] = sizes[2])
),
-- Dimensions of length 1 have no place in memory. Expanded dimensions have stride 0.
ordered AS (
    SELECT sizes, strides, list_transform(list_sort(list_transform(dimensions, lambda d: [target[d], d])), lambda x: x[2]) AS target_order,
           list_transform(list_sort(list_transform(dimensions, lambda d: [source[d], d])), lambda x: x[2]) AS source_order,
           coalesce(list_min(list_transform(dimensions, lambda d: least(source[d], target[d]))), 0) AS shortest
    FROM (
        SELECT *, list_filter(range(1, len(size) + 1), lambda d: size[d] > 1) AS dimensions FROM kinds
        WHERE len(size) = len(target) AND len(size) = len(source)
    )
)
SELECT c.id, c.rank, 'aten::copy_' AS op_name, c.ts, c.dur, c.dur::DOUBLE AS lost_ns
FROM copies AS c JOIN ordered AS o USING (sizes, strides) WHERE o.shortest > 0 AND o.target_order != o.source_order
UNION ALL
SELECT id, rank, op_name, ts, dur, dur * (1 - fp32_contiguous_ns / fp32_ns) FROM repeated_work WHERE fp32_contiguous_ns < fp32_ns * 2 / 3
