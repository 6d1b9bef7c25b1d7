-- One row per dense matmul op that a sparse matmul calls. Its shapes are those of the sparse matrix, which do not show
-- how many of its values are stored.
--
-- needs: ops
-- empty without: ops
-- column id: BIGINT, ops.id
-- column rank: INTEGER, distributed rank
SELECT o.id, o.rank FROM ops AS o JOIN ops AS p ON p.id = o.parent
WHERE o.name IN ('aten::addmm', 'aten::mm') AND contains(p.name, '_sparse_')
