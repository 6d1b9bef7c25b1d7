-- The steps that the recording itself marks: the iterations of a serving engine, or the profiler's annotations.
--
-- needs: slices, _iteration_marks
-- empty without: slices
-- column rank: INTEGER, distributed rank
-- column step: INTEGER, number in the step's name, or its position in the recording, from 0
-- column name: VARCHAR, name of the annotation
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
-- column source: VARCHAR, iteration or profiler
WITH annotated AS (
    -- The same annotation may occur on several lanes, or in both categories, at slightly different times. Steps follow
    -- one another, so an interval that earlier steps overlap by more than half is not a separate step.
    SELECT rank, try_cast(regexp_extract(name, '#(\d+)', 1) AS INTEGER) AS step, name, ts, "end" FROM (
        SELECT rank, name, ts, "end",
               max("end") OVER (PARTITION BY rank ORDER BY ts, "end" DESC, name
                                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach
        FROM (SELECT DISTINCT rank, name, ts, "end" FROM slices
              WHERE side = 'host' AND cat IN ('user_annotation', 'cpu_op') AND is_step(name)
                  AND rank NOT IN (SELECT rank FROM _iteration_marks)))
    WHERE reach IS NULL OR reach - ts <= ("end" - ts) / 2
)
SELECT rank, step, name, ts, "end", 'profiler' AS source FROM annotated
UNION ALL
SELECT rank, iteration, phase || ' ' || iteration, ts, until, 'iteration' FROM _iteration_marks
