-- One row per kernel of a sequence that runs at least three times in a row, such as a layer of a model.
--
-- The search covers only the complete step of median length, on the lane with the most kernel time. It finds at most three
-- sequences per rank, each with at least 5 % of that lane's work; they do not overlap. A sequence may start anywhere
-- within a layer.
--
-- absent: no sequence of kernels runs three times in a row
-- needs: _chain_places, device_ops, ops, op_efficiency
-- empty without: _chain_places
-- column rank: INTEGER, distributed rank
-- column chain: INTEGER, number of the sequence on its rank, in order
-- column place: INTEGER, position of the kernel in the sequence, from 1
-- column op: VARCHAR, op that launched the kernel; NULL for captured graphs and where none is recorded
-- column kernel: VARCHAR, name of the kernel
-- column input_dims: VARCHAR, shapes of the op's inputs as JSON, when recorded
-- column repeats: BIGINT, number of times the sequence runs in a row
-- column ns: BIGINT, mean duration of the kernel
-- column share: DOUBLE, the kernel's share of the sequence's time
-- column step_share: DOUBLE, share of the lane's work in the step that all repeats of the sequence take
-- column roofline_ratio: DOUBLE, op_efficiency.roofline_ratio of the op with the shapes in input_dims; NULL if the first repeat takes much longer or shorter than the mean, because the other repeats then have different shapes
-- column ts: BIGINT, start of the kernel in the first repeat, in ns
SELECT p.rank, p.chain, p.place, d.op_name AS op, d.name AS kernel, o.input_dims, p.repeats, (p.ns / p.repeats)::BIGINT AS ns,
       p.ns / nullif(sum(p.ns) OVER one, 0) AS share, sum(p.ns) OVER one / nullif(p.work_ns, 0) AS step_share,
       CASE WHEN d.dur BETWEEN 0.75 * p.ns / p.repeats AND 1.25 * p.ns / p.repeats THEN e.roofline_ratio END AS roofline_ratio, d.ts
FROM _chain_places AS p JOIN device_ops AS d ON d.id = p.id
LEFT JOIN ops AS o ON o.id = d.op
LEFT JOIN op_efficiency AS e
    ON e.source = 'op' AND e.rank = p.rank AND e.name = d.op_name AND e.input_dims = o.input_dims AND e.input_types = o.input_types
WINDOW one AS (PARTITION BY p.rank, p.chain)
ORDER BY p.rank, p.chain, p.place
