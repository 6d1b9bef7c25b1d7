-- The call that makes the detected steps of a rank.
--
-- needs: _found_steps
-- column rank: INTEGER, distributed rank
-- column name: VARCHAR, name of the annotation or of the optimizer's call
-- column calls: BIGINT, number of its calls in a step
SELECT rank, min(name) AS name, max(calls) AS calls FROM _found_steps GROUP BY rank
