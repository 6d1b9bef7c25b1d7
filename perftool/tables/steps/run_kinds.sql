-- Whether each rank's run is training or inference, with the evidence in its trace.
--
-- A backward pass, an optimizer or the gradient reduction of data parallelism, on the host or in the names of kernels,
-- proves training. If autograd functions are recorded, one of them must accumulate a parameter's gradient, or there
-- must be an optimizer, because a program that computes only gradients of inputs, such as forces or attributions, does
-- not train. The run is inference if a trace with ops shows none of these and no op has a sequence number. Autograd
-- numbers the ops that it may differentiate.
--
-- needs: slices, roles, ops
-- empty without: ops
-- column rank: INTEGER, distributed rank
-- column kind: VARCHAR, training or inference; NULL when the trace does not show it
-- column backward: BIGINT, number of slices that belong to a backward pass
-- column optimizer: BIGINT, number of slices that belong to an optimizer
-- column numbered: BIGINT, number of ops that autograd numbered
-- column ops: BIGINT, number of framework ops
-- column compiled: BOOLEAN, whether the run calls code from torch.compile
-- column captured: BOOLEAN, whether the run launches captured graphs
WITH names AS (
    SELECT name, cat, bool_or(role = 'backward') AS backward, bool_or(role IN ('optimizer', 'update')) AS optimizer
    FROM roles
    -- An inverse STFT calls aten::unfold_backward in its forward pass.
    WHERE role IN ('backward', 'optimizer', 'update') AND name <> 'aten::unfold_backward' GROUP BY name, cat
),
signs AS (
    SELECT s.rank, count(*) FILTER (n.backward) AS backward, count(*) FILTER (n.optimizer) AS optimizer
    FROM slices AS s JOIN names AS n ON n.name = s.name AND n.cat = s.cat GROUP BY s.rank
),
counted AS (
    SELECT rank, count(*) AS ops, count(sequence) AS numbered, count(*) FILTER (starts_with(name, 'autograd::engine::evaluate_function')) AS functions,
           count(*) FILTER (name = 'torch::autograd::AccumulateGrad') AS added
    FROM ops GROUP BY rank
),
-- Whether the run already uses torch.compile or captured graphs.
done AS (
    SELECT s.rank, bool_or(r.role = 'compiled') AS compiled, bool_or(r.role = 'graph_launch') AS captured
    FROM slices AS s JOIN roles AS r ON r.name = s.name AND r.cat = s.cat
    WHERE s.side = 'host' AND r.role IN ('compiled', 'graph_launch') GROUP BY s.rank
)
SELECT c.rank,
       CASE WHEN s.optimizer > 0 OR s.backward > 0 AND (c.functions = 0 OR c.added > 0) THEN 'training'
            -- With only a few ops, the kind of run is unknown.
            WHEN c.ops >= 20 AND c.numbered = 0 AND coalesce(s.backward, 0) = 0 THEN 'inference' END AS kind,
       coalesce(s.backward, 0) AS backward, coalesce(s.optimizer, 0) AS optimizer, c.numbered, c.ops,
       coalesce(d.compiled, false) AS compiled, coalesce(d.captured, false) AS captured
FROM counted AS c LEFT JOIN signs AS s USING (rank) LEFT JOIN done AS d USING (rank)
ORDER BY c.rank
