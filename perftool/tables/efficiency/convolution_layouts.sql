-- One row per convolution of images or volumes that oneDNN computes on a CPU, with the memory layout of its input.
--
-- oneDNN stores the channels of a pixel together (NHWC). It converts NCHW inputs to NHWC, and the result back to NCHW,
-- unless the filters are already in NHWC. The same applies to volumes (NDHWC and NCDHW).
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
-- column dimensions: BIGINT, dimensions of the input: 4 for images, 5 for volumes
-- column channels_apart: BOOLEAN, whether input and filters are NCHW or NCDHW; NULL if their strides are unknown
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
                    try_cast(strides[2] AS BIGINT[]) AS filter_stride FROM laid_out)
-- With a single channel or pixel, both layouts are the same. A single row of pixels comes from a one-dimensional
-- convolution, whose tensors have no channels_last layout.
SELECT id, rank, name, input_dims, input_types, ts, dur, len(size) AS dimensions,
       size[2] > 1 AND list_product(size[3:]) > list_max(size[3:]) AND stride[-1] = 1
       AND stride[2] = list_product(size[3:])
       AND NOT (filter_stride[2] = 1 AND list_product(filter[3:]) > 1) AS channels_apart
FROM named WHERE len(size) IN (4, 5)
