-- One row per kernel of a matmul or convolution on a device, inside the complete steps.
--
-- A kernel counts if the op that launched it is a matmul, a convolution or an RNN layer, if its name says so, or if it
-- runs on Gaudi's MME (each lane of the MME runs part of a kernel). Matmuls with a sparse matrix do not count. The
-- dimensions are known for mm, addmm, bmm and baddbmm with recorded shapes.
--
-- needs: device_ops, ops, windows, _sparse_products
-- empty without: device_ops.kind=kernel
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column name: VARCHAR, kernel name
-- column op: BIGINT, op that launched the kernel (slices.id)
-- column op_name: VARCHAR, name of the op
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, duration in ns
-- column bits: INTEGER, width of the operands: 8, 16, 32 or 64, NULL if unknown
-- column tf32: BOOLEAN, whether matmuls of 32-bit operands run on matrix engines as TF32, according to the kernel's name
-- column batch: BIGINT, number of matmuls, 1 for mm and addmm
-- column m: BIGINT, rows of the first operand
-- column k: BIGINT, columns of the first operand
-- column n: BIGINT, columns of the second operand
WITH work AS (
    SELECT d.id, d.rank, d.name, d.engine, d.dtype, d.op, d.ts, d.dur,
           CASE WHEN regexp_matches(d.op_name, '^aten::(mm|addmm|bmm|baddbmm|_scaled_mm|_convolution|convolution_backward|mkldnn_rnn_layer.*|'
                                               || '(cudnn|miopen|thnn|_?slow|mkldnn)_?conv.*)$')
                THEN d.op_name END AS op_name
    FROM device_ops AS d JOIN windows AS t ON t.rank = d.rank AND d.ts >= t.ts AND d.ts < t."end"
    WHERE d.valid AND d.kind = 'kernel' AND (d.op IS NULL OR d.op NOT IN (SELECT id FROM _sparse_products))
),
names AS (
    SELECT name, regexp_matches(name, '(^|[^b])gemm|Cijk_|xmma|nvjet|wgrad|dgrad|implicit_convolve|igemm|fc-dtype', 'i') AS matrix,
           -- Kernels on single-precision cores (ffma, simt) do not use TF32; nvjet runs only on matrix engines.
           regexp_matches(name, 'tf32|s1688|tensorop_s|nvjet', 'i') AS tf32,
           CASE WHEN regexp_matches(name, 'bf16|f16f16|h?884|[hs]16816|hgemm|fp16|half|bfloat16|'
                                          || '_(HHS|BBS|HB|BH|B|H)_(BS|HS|BH|HA|H|B)|nvjet_[th]s', 'i') THEN 16
                WHEN regexp_matches(name, 'e4m3|e5m2|f8f8|nvjet_[qo]', 'i') THEN 8
                WHEN regexp_matches(name, 'dgemm|f64f64|_DB_', 'i') THEN 64
                WHEN regexp_matches(name, 's1688|sgemm|tf32|f32f32|_SB_|scudnn|dtype_Float|simt_|nvjet_s', 'i') THEN 32 END AS bits
    FROM (SELECT DISTINCT name FROM work)
),
matrix AS (
    SELECT w.*, n.bits AS name_bits, n.tf32 FROM work AS w JOIN names AS n USING (name)
    WHERE n.matrix OR w.op_name IS NOT NULL OR w.engine = 'MME'
),
-- Parse the inputs once for each op, which may have many kernels.
described AS (
    SELECT id,
           CASE WHEN input_types LIKE '%Float8%' THEN 8 WHEN input_types LIKE '%BFloat16%' OR input_types LIKE '%Half%' THEN 16
                WHEN input_types LIKE '%double%' THEN 64 WHEN input_types LIKE '%"float"%' THEN 32 END AS type_bits,
           -- The first input of these two ops is the term that is added to the matmul.
           name IN ('aten::addmm', 'aten::baddbmm') AS added,
           json_extract(input_dims, CASE WHEN added THEN '$[1]' ELSE '$[0]' END)::VARCHAR AS first,
           json_extract(input_dims, CASE WHEN added THEN '$[2]' ELSE '$[1]' END)::VARCHAR AS second,
           CASE WHEN name IN ('aten::mm', 'aten::addmm', 'aten::bmm', 'aten::baddbmm') THEN try_cast(first AS INTEGER[])::BIGINT[] END AS a,
           try_cast(second AS INTEGER[])::BIGINT[] AS b
    FROM ops WHERE id IN (SELECT op FROM matrix WHERE op_name IS NOT NULL)
),
operands AS (
    SELECT x.*, o.type_bits, o.a, o.b FROM matrix AS x LEFT JOIN described AS o ON o.id = x.op AND x.op_name IS NOT NULL
)
SELECT id, rank, name, op, op_name, ts, dur,
       CASE WHEN regexp_matches(dtype, 'hf8|f8|int8', 'i') THEN 8 WHEN dtype LIKE '%16%' THEN 16
            WHEN dtype LIKE '%32%' THEN 32
            ELSE coalesce(type_bits, name_bits) END AS bits,
       coalesce(bits = 32 AND tf32, false) AS tf32,
       CASE len(a) WHEN 2 THEN 1 WHEN 3 THEN a[1] END AS batch, a[-2] AS m, a[-1] AS k,
       CASE WHEN len(a) = len(b) THEN b[-1] END AS n
FROM operands
