"""Reads compiled graphs from Gaudi's graph compiler: ``prof-data/post-graph/*.json`` in an archive, or files that it
writes with GRAPH_VISUALIZATION=1.

The keys are defined in ``post_graph_serializer.cpp`` in the open Gaudi software. In the file, a shape begins with the
fastest-changing dimension; this reader reverses it to match PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from perftool.errors import InputError
from perftool.model.nodes import GraphNode, GraphTensor
from perftool.model.records import LogReading
from perftool.readers.files.rank_name import rank_of
from perftool.readers.files.stream import whole
from perftool.readers.nodes.json_list import list_under
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.json_values import integer, number, text
from perftool.readers.trace import envelope

# Larger than any graph. The graph of a large model has about ten thousand nodes of a few kB each.
MOST_BYTES = 512 << 20
_HEAD = 256 << 10
_KEY = b'"graphs"'
_GRAPH_KEYS = (b'"recipe_debug_id"', b'"is_logical"', b'"exec_order_idx"', b'"input_tensors"', b'"max_shape"')
_ENGINES = ("TPC", "MME", "DMA", "NIC", "ROT")
_MOST_DIMENSIONS = 32
_whole, _number = partial(integer, below=1 << 48), partial(number, below=1 << 48)
# Each node repeats the name of its graph.
_LONGEST_GRAPH_NAME = 200
# All operands together may have one dimension per this many bytes of the file, because many nodes may share a tensor.
_BYTES_PER_DIMENSION = 8
# A file may contain _FREE_NODES nodes, and one more per this many bytes. The nodes of real files are longer.
_BYTES_PER_NODE, _FREE_NODES = 200, 10_000


def begins_graphs(data: bytes) -> bool:
    """Whether ``data`` is the beginning of a file with compiled graphs."""
    head = data[:_HEAD]
    return _KEY in head and "graphs" in envelope.top_keys(head) and any(word in head for word in _GRAPH_KEYS)


def read_file(path: str, rank: int | None = None) -> LogReading:
    """Read the device nodes in the file ``path``. The rank comes from its name unless it is given. Raise the errors of
    ``read``."""
    return read(whole(path, MOST_BYTES), rank_of(path) if rank is None else rank, path)


def read(data: bytes, rank: int | None, path: str) -> LogReading:
    """Read the device nodes in ``data``, the content of ``path``. Raise InputError if it has other content."""
    graphs = list_under("graphs", data, path)
    if graphs is None:
        raise InputError(f"{path}: not a post-graph file: no list of graphs")
    tally = IssueTally()
    room = _Room(_FREE_NODES + len(data) // _BYTES_PER_NODE, len(data) // _BYTES_PER_DIMENSION, tally)
    nodes = [node for graph in graphs if isinstance(graph, dict) for node in _nodes(graph, rank, room, tally)]
    return LogReading(graph_nodes=tuple(nodes), issues=tally.issues(), kind="graph")


@dataclass
class _Room:
    """What a file may still contain: ``nodes`` more nodes, whose operands may have ``dimensions`` more dimensions in
    total."""

    nodes: int
    dimensions: int
    tally: IssueTally

    def for_node(self) -> bool:
        """Whether another node may be kept."""
        self.nodes -= 1
        if self.nodes < 0:
            self.tally.note("too many nodes", "nodes were left out: a real file of this size has fewer")
        return self.nodes >= 0

    def for_operands(self, names: object, tensors: Mapping[str, GraphTensor]) -> tuple[GraphTensor, ...]:
        listed = names if isinstance(names, list) else []
        found = tuple(tensors[name] for name in listed if isinstance(name, str) and name in tensors)
        self.dimensions -= sum(len(tensor.shape) for tensor in found)
        if self.dimensions < 0:
            self.tally.note("operand", "operands of nodes were left out: a real file of this size has fewer")
        return found if self.dimensions >= 0 else ()


def _nodes(graph: Mapping[str, Any], rank: int | None, room: _Room, tally: IssueTally) -> Iterator[GraphNode]:
    tensors = {
        one["name"]: tensor
        for one in _tables(graph.get("tensors"))
        if isinstance(one.get("name"), str) and (tensor := _tensor(one)) is not None
    }
    # Cut the name once, so that the rows of all nodes share it.
    name = (text(graph.get("name")) or "")[:_LONGEST_GRAPH_NAME] or None
    for node in _tables(graph.get("nodes")):
        if node.get("is_logical") is True or not room.for_node():
            continue
        if (made := _node(graph, name, node, tensors, rank, room)) is None:
            tally.note("node", "nodes of a graph without a name or an engine were left out")
        else:
            yield made


def _node(
    graph: Mapping[str, Any],
    graph_name: str | None,
    node: Mapping[str, Any],
    tensors: Mapping[str, GraphTensor],
    rank: int | None,
    room: _Room,
) -> GraphNode | None:
    name, engine = text(node.get("name")), _engine(node.get("engine"))
    if name is None or engine is None:
        return None
    fused = node.get("fused_node_graph")
    inner = _tables(fused.get("nodes")) if isinstance(fused, dict) else []
    origins = node.get("origin_nodes")
    return GraphNode(
        recipe=_whole(graph.get("recipe_debug_id")),
        recipe_name=graph_name,
        node=name,
        node_id=_whole(node.get("id")),
        engine=engine,
        guid=text(node.get("guid")) or "",
        inputs=room.for_operands(node.get("input_tensors"), tensors),
        outputs=room.for_operands(node.get("output_tensors"), tensors),
        # The compiler writes 0 if it has no estimate.
        expected_cycles=_whole(node.get("mme_expected_compute_cycles")) or None,
        expected_dma_us=_number(node.get("dma_expected_duration")) or None,
        utilisation=_number(node.get("mme_compute_utilization")) or None,
        strategy=text(node.get("mme_node_strategy")),
        fused_ops=tuple(guid for one in inner if (guid := text(one.get("guid")))),
        origins=tuple(filter(None, map(text, origins))) if isinstance(origins, list) else (),
        rank=rank,
    )


def _engine(value: object) -> str | None:
    return next((engine for engine in _ENGINES if isinstance(value, str) and engine in value.upper()), None)


def _tensor(found: Mapping[str, Any]) -> GraphTensor | None:
    shape = found.get("max_shape")
    if not isinstance(shape, list) or len(shape) > _MOST_DIMENSIONS or any(_whole(size) is None for size in shape):
        return None
    allocation = text(found.get("allocation"))
    return GraphTensor(
        tuple(reversed(shape)), text(found.get("dtype")), _whole(found.get("dtype_bit_size")), allocation
    )


def _tables(found: object) -> list[Mapping[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
