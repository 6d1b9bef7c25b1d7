-- The ops that checkpointing runs again in the backward pass.
--
-- Backward functions usually run their ops without recording gradients, so an op with a sequence number inside a
-- backward function builds a new graph. Such an op is recomputed if an op with the same name and shapes also ran
-- outside the backward pass; this excludes, for example, the ops of a gradient penalty. If the new graph contains
-- backward ops, the program differentiates twice (create_graph=True), and no op of the rank counts as recomputed.
--
-- needs: ops
-- empty without: ops.sequence
-- column op: BIGINT, ops.id
-- column function: BIGINT, last backward function that started before the op on its track (ops.id)
WITH functions AS (
    SELECT track AS rank, 0 AS class, ts, "end" FROM ops WHERE starts_with(name, 'autograd::engine::evaluate_function')
),
-- A reversible network starts backward passes inside a backward function.
backwards AS (SELECT rank AS track, ts, "end" FROM interval_union(functions)),
graphs AS (
    SELECT o.rank, o.track, o.name, o.input_dims, o.ts, o."end"
    FROM (FROM ops WHERE EXISTS (FROM backwards)) AS o ASOF JOIN backwards AS b ON b.track = o.track AND o.ts >= b.ts
    WHERE o.sequence >= 0 AND starts_with(o.name, 'aten::') AND b."end" >= o."end"
),
alike AS (
    SELECT o.rank, o.track, o.name, o.input_dims, o.ts, o."end" FROM ops AS o
    SEMI JOIN graphs AS g ON g.rank = o.rank AND g.name = o.name AND g.input_dims IS NOT DISTINCT FROM o.input_dims
),
outside AS (
    SELECT o.rank, o.name, o.input_dims FROM alike AS o ASOF LEFT JOIN backwards AS b ON b.track = o.track AND o.ts >= b.ts
    WHERE b.ts IS NULL OR b."end" < o."end"
),
repeated AS (
    SELECT g.track AS rank, 0 AS class, g.ts, g."end" FROM graphs AS g
    ANTI JOIN (FROM graphs WHERE contains(name, '_backward')) AS t ON t.rank = g.rank
    SEMI JOIN outside AS f ON f.rank = g.rank AND f.name = g.name AND f.input_dims IS NOT DISTINCT FROM g.input_dims
),
united AS (SELECT rank AS track, ts, "end" FROM interval_union(repeated))
-- The conditions save ASOF JOIN from sorting all ops if there is no backward pass.
SELECT o.id AS op, n.id AS function
FROM (FROM ops WHERE EXISTS (FROM united)) AS o ASOF JOIN united AS u ON u.track = o.track AND o.ts >= u.ts
ASOF JOIN (FROM ops WHERE starts_with(name, 'autograd::engine::evaluate_function') AND EXISTS (FROM united)) AS n ON n.track = o.track AND o.ts >= n.ts
WHERE o."end" <= u."end"
