-- The calls that make up a detected step of a rank. The class of an optimizer is left out, because a run with another
-- optimizer is still comparable.
--
-- needs: _found_steps
-- column rank: INTEGER, distributed rank
-- column unit: VARCHAR, the annotation or the optimizer, and the number of its calls in a step
SELECT rank, CASE WHEN max(calls) > 1 THEN max(calls) || ' calls of ' ELSE 'one call of ' END
             || CASE WHEN min(source) = 'optimizer' THEN 'the optimizer' ELSE min(name) END AS unit
FROM _found_steps GROUP BY rank
