-- One row per dense matmul op that a sparse matmul of PyTorch calls. Its shapes are those of the sparse matrix, which do
-- not show how many of its values are stored. Other ops called sparse (block-sparse attention, sparse mixtures of
-- experts) call matmuls with dense matrices.
--
-- needs: ops
-- empty without: ops
-- column id: BIGINT, ops.id
-- column rank: INTEGER, distributed rank
SELECT o.id, o.rank FROM ops AS o JOIN ops AS p ON p.id = o.parent
WHERE o.name IN ('aten::addmm', 'aten::mm') AND starts_with(p.name, 'aten::_sparse_')
