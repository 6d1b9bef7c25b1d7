"""Gaudi's graph functions on any device, under one name each."""

from __future__ import annotations

from perftool.fused.graphs.caches import ModuleCacher, wrap_in_hpu_graph
from perftool.fused.graphs.callables import make_graphed_callables
from perftool.fused.graphs.capture import HPUGraph, graph
from perftool.fused.graphs.record import GraphCaptureError

__all__ = [
    "GraphCaptureError",
    "HPUGraph",
    "ModuleCacher",
    "graph",
    "make_graphed_callables",
    "wrap_in_hpu_graph",
]
