-- One row per rank with profiler steps that overlap earlier ones; these do not count as steps.
--
-- needs: slices, step_marks
-- empty without: step_marks
-- column rank: INTEGER, distributed rank
-- column steps: BIGINT, number of overlapping steps
SELECT s.rank, count(DISTINCT s.name) AS steps
FROM (SELECT rank, name::VARCHAR AS name FROM slices
      WHERE side = 'host' AND cat IN ('user_annotation', 'cpu_op') AND is_step(name)
          AND rank IN (SELECT rank FROM step_marks WHERE source = 'profiler')) AS s
ANTI JOIN step_marks AS m ON m.rank = s.rank AND m.name = s.name
GROUP BY s.rank
