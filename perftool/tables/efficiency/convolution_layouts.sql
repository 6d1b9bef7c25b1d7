-- One row per image convolution that oneDNN computes on a CPU, with the memory layout of its input.
--
-- oneDNN stores the channels of a pixel together (NHWC). It converts NCHW inputs to NHWC, and the result back to NCHW,
-- unless the filters are already in NHWC.
--
-- absent: the CPU is not the device, or strides are not recorded (record_shapes=True)
-- needs: ops, _cpu_runs
-- empty without: _cpu_runs
-- column id: BIGINT, ops.id
-- column rank: INTEGER, distributed rank
-- column name: VARCHAR, name of the op
-- column input_dims: VARCHAR, ops.input_dims
-- column input_types: VARCHAR, ops.input_types
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, duration in ns
-- column channels_apart: BOOLEAN, whether input and filters have NCHW layout; NULL where their strides are not recorded
-- column converted_ns: BIGINT, time a forward call spent converting its result to NCHW; NULL if no nested op shows it
-- column converted_elements: BIGINT, number of elements in the converted result
WITH convolutions AS (
    SELECT o.*, json_extract(r.args, '$."Input Strides"') AS strides, o.name = 'aten::mkldnn_convolution' AS forward
    FROM ops AS o JOIN (FROM _cpu_runs) USING (rank) JOIN raw AS r ON r.rowid = o.id
    WHERE o.name IN ('aten::mkldnn_convolution', 'aten::convolution_backward')
),
laid_out AS (
    SELECT * REPLACE (CASE WHEN forward THEN json_extract(strides, ['$[0]', '$[1]']) ELSE json_extract(strides, ['$[1]', '$[2]']) END AS strides),
           CASE WHEN forward THEN json_extract(input_dims, ['$[0]', '$[1]']) ELSE json_extract(input_dims, ['$[1]', '$[2]']) END AS sizes
    FROM convolutions
),
named AS (SELECT *, try_cast(sizes[1] AS INTEGER[])::BIGINT[] AS size, try_cast(strides[1] AS BIGINT[]) AS stride, try_cast(sizes[2] AS INTEGER[])::BIGINT[] AS filter,
                    try_cast(strides[2] AS BIGINT[]) AS filter_stride FROM laid_out),
-- The conversion of oneDNN's result appears as the time between the allocation of a tensor and the op that sets its
-- strides.
inner_ops AS (
    SELECT o.parent AS id, o.name, o.ts - lag(o."end") OVER siblings AS ns, lag(o.name) OVER siblings AS previous,
           try_cast(o.input_dims->>'$[0]' AS BIGINT[]) AS size
    FROM ops AS o WHERE o.parent IN (SELECT id FROM convolutions WHERE forward) WINDOW siblings AS (PARTITION BY o.parent ORDER BY o.ts, o.id)
),
converted AS (
    SELECT id, sum(ns)::BIGINT AS ns, least(sum(list_product(size)), 1e18)::BIGINT AS elements FROM inner_ops
    WHERE name = 'aten::as_strided_' AND previous = 'aten::empty' AND ns > 0 AND len(size) = 4 GROUP BY id
)
-- With a single channel or pixel, both layouts are the same. A single row of pixels comes from a one-dimensional
-- convolution, whose tensors have no channels_last layout.
SELECT n.id, rank, name, input_dims, input_types, ts, dur,
       n.size[2] > 1 AND least(n.size[3], n.size[4]) > 1 AND stride[4] = 1 AND stride[2] = n.size[3] * n.size[4]
       AND NOT (filter_stride[2] = 1 AND filter[3] * filter[4] > 1) AS channels_apart,
       c.ns AS converted_ns, c.elements AS converted_elements
FROM named AS n LEFT JOIN converted AS c USING (id) WHERE len(n.size) = 4
