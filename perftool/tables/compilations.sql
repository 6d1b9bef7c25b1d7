-- One row per compilation of a graph: by torch.compile, or by the Gaudi graph compiler.
--
-- needs: slices, steps
-- column id: BIGINT, slices.id, NULL when a log or metrics file is the source
-- column rank: INTEGER, distributed rank
-- column step: INTEGER, step in which it begins
-- column recipe: VARCHAR, what was compiled, when known
-- column reason: VARCHAR, new shapes, new constants, evicted, or unknown
-- column source: VARCHAR, torch.compile, trace, metrics or log
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, length in ns
-- column end: BIGINT, end in ns
WITH compiling AS (
    SELECT id, rank, track, name, ts, "end",
           max("end") OVER (PARTITION BY track ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach
    FROM slices
    WHERE side = 'host' AND cat = 'cpu_op'
        AND (name IN ('dynamo', 'entire_frame_compile', 'entire_backward_compile', 'compile_attempt_0')
             OR regexp_matches(name, '^(_compile\.compile_inner|backward\._backward_impl) \(dynamo_timed\)'))
),
outermost AS (SELECT * FROM compiling WHERE reach IS NULL OR ts >= reach)
SELECT c.id, c.rank, s.step, NULL::VARCHAR AS recipe, 'unknown' AS reason, 'torch.compile' AS source,
       c.ts, c."end" - c.ts AS dur, c."end"
FROM outermost AS c
ASOF LEFT JOIN steps AS s ON s.rank = c.rank AND c.ts >= s.ts
