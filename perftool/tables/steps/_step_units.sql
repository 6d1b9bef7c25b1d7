-- The calls that make up a step of a rank, if the program did not mark the step itself. The class of an optimizer is
-- left out, because runs with different optimizers are still comparable.
--
-- needs: _found_steps, machines
-- column rank: INTEGER, distributed rank
-- column unit: VARCHAR, the annotation, the optimizer or the module, and the number of its calls in a step
SELECT rank, CASE WHEN max(calls) > 1 THEN max(calls) || ' calls of ' ELSE 'one call of ' END
             || CASE WHEN min(source) = 'optimizer' THEN 'the optimizer' ELSE min(name) END AS unit
FROM _found_steps GROUP BY rank
UNION ALL SELECT rank, 'one call of ' || step_module FROM machines WHERE step_module IS NOT NULL
