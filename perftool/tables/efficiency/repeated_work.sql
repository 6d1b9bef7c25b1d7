-- One row per unit of device work, inside the complete steps, of an op whose speeds were measured after the recording.
--
-- The times in channels_last layout are NULL unless the run has convolutions of as many dimensions. They are also NULL
-- in two cases, in which a program may become slower in that layout: the run often makes images contiguous or reshapes
-- them (as instance norm does), which restores the other layout, or it has images with one channel, which have both
-- layouts.
--
-- needs: op_speeds, ops, device_ops, windows
-- empty without: op_speeds
-- column id: BIGINT, device_ops.id
-- column rank: INTEGER, distributed rank
-- column op_name: VARCHAR, name of the op that was repeated, which contains the work
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, duration in ns
-- column fp32_ns: BIGINT, op_speeds.fp32_ns
-- column bf16_ns: BIGINT, op_speeds.bf16_ns
-- column fp32_contiguous_ns: BIGINT, op_speeds.fp32_contiguous_ns
-- column layout: VARCHAR, layout of the following two times: channels_last for images, channels_last_3d for volumes
-- column fp32_channels_last_ns: BIGINT, op_speeds.fp32_channels_last_ns
-- column bf16_channels_last_ns: BIGINT, op_speeds.bf16_channels_last_ns
WITH repeated AS (
    SELECT o.track, o.ts, o."end", s.*,
           coalesce(nullif(json_array_length(s.input_dims, '$[0][0]'), 0), json_array_length(s.input_dims, '$[0]')) AS dimensions
    FROM ops AS o JOIN op_speeds AS s ON s.rank = o.rank AND s.name = o.name AND s.input_dims = replace(o.input_dims, ' ', '')
    WHERE NOT regexp_matches(o.input_types, 'Half|BFloat16|double')
),
-- The first op in this order is the innermost.
starts AS (
    SELECT * FROM repeated QUALIFY row_number() OVER (PARTITION BY track, ts ORDER BY "end", name) = 1
),
convolutions AS (
    SELECT rank, input_dims->>'$[0]' AS image, try_cast(image AS BIGINT[]) AS size FROM ops WHERE name = 'aten::convolution'
),
-- Copies inside another op are that op's own: it copies its operands into the layout that it needs. A clone keeps the
-- layout unless its second argument, the memory format, is 0 (contiguous).
restoring AS (
    SELECT o.rank, json_array_length(o.input_dims, '$[0]')::BIGINT AS dimensions, count(*) AS ops
    FROM ops AS o SEMI JOIN convolutions AS c ON c.rank = o.rank AND c.image = (o.input_dims->>'$[0]')
    LEFT JOIN ops AS p ON p.id = o.parent
    WHERE (o.name IN ('aten::reshape', 'aten::instance_norm') OR o.name = 'aten::clone' AND coalesce(o.concrete_inputs->>'$[1]', '0') = '0')
        AND (o.outermost OR p.outermost AND p.name = 'aten::contiguous')
    GROUP BY ALL
),
-- Of twelve programs with more such ops than a quarter of the convolutions, channels_last made seven slower, and saved at
-- most 11 % in the others (measured).
kept AS (
    SELECT c.rank, c.dimensions FROM (SELECT *, len(size) AS dimensions FROM convolutions) AS c
    LEFT JOIN restoring AS r USING (rank, dimensions)
    GROUP BY ALL HAVING min(size[2]) > 1 AND coalesce(max(r.ops), 0) <= 0.25 * count(*)
)
SELECT d.id, d.rank, s.name AS op_name, d.ts, d.dur, s.fp32_ns, s.bf16_ns, s.fp32_contiguous_ns,
       CASE k.dimensions WHEN 4 THEN 'channels_last' WHEN 5 THEN 'channels_last_3d' END AS layout,
       CASE WHEN k.rank IS NOT NULL THEN s.fp32_channels_last_ns END AS fp32_channels_last_ns,
       CASE WHEN k.rank IS NOT NULL THEN s.bf16_channels_last_ns END AS bf16_channels_last_ns
FROM device_ops AS d JOIN ops AS o ON o.id = d.op
ASOF JOIN starts AS s ON s.track = o.track AND o.ts >= s.ts
JOIN windows AS t ON t.rank = d.rank AND d.ts >= t.ts AND d.ts < t."end"
LEFT JOIN kept AS k ON k.rank = d.rank AND k.dimensions = s.dimensions
WHERE d.valid AND o."end" <= s."end"
