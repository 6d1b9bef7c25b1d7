"""Gaudi's graph functions on any device, under one name each."""

from __future__ import annotations

from perftool.fused.graph_cacher import ModuleCacher
from perftool.fused.graph_callables import make_graphed_callables
from perftool.fused.graph_capture import HPUGraph, graph
from perftool.fused.graph_record import GraphCaptureError
from perftool.fused.graph_wrapped import wrap_in_hpu_graph, wrap_in_hpu_graph_func

__all__ = [
    "GraphCaptureError",
    "HPUGraph",
    "ModuleCacher",
    "graph",
    "make_graphed_callables",
    "wrap_in_hpu_graph",
    "wrap_in_hpu_graph_func",
]
