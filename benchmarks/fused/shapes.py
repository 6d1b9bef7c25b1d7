"""The parameter shapes of three models by the names that the tables use."""

from __future__ import annotations

from perftool.bench.workloads.weights import Shape, bert_base_shapes, resnet50_shapes, small_shapes

__all__ = ["SETS", "Shape"]

SETS = {"resnet50": resnet50_shapes, "bert": bert_base_shapes, "2000 small": small_shapes}
