-- One row per rank, op, input shapes and input types: the time of the kernels compared with the device's peaks.
--
-- Device work (kernels, copies, fills, collectives) that starts inside the complete steps counts once: under the
-- innermost op or annotation that launched it, else under its name on the device. Work on several lanes at once adds
-- up, so the sum may exceed the busy time of the device. An op without a cost model has no flops or bytes. The model
-- assumes that a call reads each input once and writes each result once; caches can raise roofline_ratio above 1.
-- Operations of matmuls, convolutions and attention count at the peak rate of their type (as TF32 only when a kernel's
-- name says so), and other operations at the rate of the vector units. If arguments other than tensors differ, flops
-- and bytes are means.
--
-- absent: the trace shows no device work
-- needs: _op_work, _op_bounds, op_kinds
-- empty without: _op_work
-- column rank: INTEGER, distributed rank
-- column name: VARCHAR, name of the op, or of the kernel where no op launched it
-- column source: VARCHAR, op: a framework op launched the work; graph: it was captured in a device graph; recipe: it belongs to a recipe (Gaudi); kernel: the recording shows none of these
-- column engine: VARCHAR, device_ops.engine, NULL where the work of an op runs on several engines
-- column input_dims: VARCHAR, shapes of the inputs as JSON, when recorded (record_shapes=True)
-- column input_types: VARCHAR, types of the inputs as JSON, when recorded
-- column calls: BIGINT, number of calls that launched work; number of kernels if no op launched them
-- column flops: DOUBLE, operations of one call, NULL if there is no cost model
-- column bytes: DOUBLE, bytes of device memory that one call reads and writes, NULL if there is no cost model
-- column kernel_ns: BIGINT, total time of the work of all calls in ns
-- column tflops: DOUBLE, achieved TFLOP/s
-- column tbytes: DOUBLE, achieved TB/s
-- column bound: VARCHAR, compute or memory, whichever takes longer at the device's peak; NULL where the peak is unknown
-- column roofline_ratio: DOUBLE, time at the device's peak / kernel_ns; NULL where the device or its rate is unknown
-- column kind: VARCHAR, op_kinds.kind, collective or generated (kernels of TorchInductor); NULL for others
WITH merged AS (
    -- Floating-point sums need a fixed order to be reproducible.
    SELECT w.rank, w.name, w.source, w.input_dims, w.input_types,
           CASE WHEN count(w.engine) = count(*) AND min(w.engine) = max(w.engine) THEN min(w.engine) END AS engine,
           sum(w.calls)::BIGINT AS calls, sum(w.kernel_ns)::BIGINT AS kernel_ns,
           -- If any call of an op has no cost model, the whole op counts as having none.
           count(b.flops) = count(*) AS counted, count(b.bytes) = count(*) AS sized, count(b.memory_ns) = count(*) AS bounded,
           sum(b.flops::DOUBLE * w.calls ORDER BY w.id) AS flops, sum(b.bytes::DOUBLE * w.calls ORDER BY w.id) AS bytes,
           sum(b.compute_ns ORDER BY w.id) AS compute_ns, sum(b.memory_ns ORDER BY w.id) AS memory_ns
    FROM _op_work AS w LEFT JOIN _op_bounds AS b USING (id)
    -- Work that no op launched gets a row for each engine.
    GROUP BY w.rank, w.name, w.source, w.input_dims, w.input_types, CASE WHEN w.source <> 'op' THEN w.engine END
)
SELECT rank, name, source, engine, input_dims, input_types, calls,
       CASE WHEN counted THEN flops / calls END AS flops, CASE WHEN sized THEN bytes / calls END AS bytes,
       kernel_ns,
       CASE WHEN counted THEN flops / nullif(kernel_ns, 0) / 1e3 END AS tflops,
       CASE WHEN sized THEN bytes / nullif(kernel_ns, 0) / 1e3 END AS tbytes,
       CASE WHEN bounded THEN CASE WHEN coalesce(compute_ns, 0) > memory_ns THEN 'compute' ELSE 'memory' END END AS bound,
       CASE WHEN bounded THEN greatest(coalesce(compute_ns, 0), memory_ns) / nullif(kernel_ns, 0) END AS roofline_ratio,
       coalesce(k.kind, CASE WHEN engine = 'collective' THEN 'collective' WHEN starts_with(name, 'triton_') THEN 'generated' END) AS kind
FROM merged LEFT JOIN op_kinds AS k USING (name)
ORDER BY rank, kernel_ns DESC, name, source, engine, input_dims, input_types
