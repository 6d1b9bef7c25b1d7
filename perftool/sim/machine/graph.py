"""A lazy graph: the ops since the last cut, their key in the recipe cache, and their kernels."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from perftool.sim.machine.costs import Roofline

# Maximum number of ops in a fused kernel; the real limit of the graph compiler is not published.
_LONGEST_CHAIN = 16


@dataclass(frozen=True)
class Work:
    """The device cost of one op. ``pointwise`` ops that feed each other become one kernel."""

    name: str
    dtype: str
    engine: str
    flops: int = 0
    elements: int = 0
    read: int = 0
    written: int = 0
    pointwise: bool = False


@dataclass(frozen=True)
class Node:
    """An op of a graph. ``sources`` are the nodes whose results the op reads, with the bytes of each result.

    ``parts`` describe its arguments, and ``names`` are their names. ``name`` and ``parts`` form the node's key.
    ``line`` is the script line that called the op.
    """

    work: Work
    name: str
    parts: tuple[Hashable, ...]
    sources: tuple[tuple[int, int], ...]
    names: tuple[str, ...] = ()
    line: str = ""

    @property
    def key(self) -> Hashable:
        """This node's part of the graph's key."""
        return self.name, self.parts


@dataclass(frozen=True)
class Kernel:
    """A unit of device work of ``length`` ns. ``after`` lists the indices of the kernels that must finish first."""

    engine: str
    name: str
    dtype: str
    length: int
    after: tuple[int, ...]


@dataclass
class _Chain:
    """Pointwise nodes that become one kernel; ``saved`` is the number of bytes passed between them, which never reach
    memory."""

    nodes: list[int]
    saved: int = 0


class Graph:
    """Collects nodes. ``inputs`` numbers the external storages in order of first use. ``touched`` contains the serial
    numbers of the device storages among the arguments of the ops.
    """

    def __init__(self, serial: int) -> None:
        self.serial = serial
        self.nodes: list[Node] = []
        self.inputs: dict[int, int] = {}
        self.touched: set[int] = set()

    def __len__(self) -> int:
        return len(self.nodes)

    def add(self, node: Node) -> int:
        """Append ``node`` and return its index."""
        self.nodes.append(node)
        return len(self.nodes) - 1

    def key(self) -> Hashable:
        """Return the key in the recipe cache: two graphs with equal keys share a recipe."""
        return tuple(node.key for node in self.nodes)

    def kernels(self, speed: Roofline) -> tuple[Kernel, ...]:
        """Return the kernels of the graph, in the order of their first ops."""
        chains = _chains(self.nodes)
        place = {index: number for number, chain in enumerate(chains) for index in chain.nodes}
        return tuple(self._kernel(chain, place, speed) for chain in chains)

    def _kernel(self, chain: _Chain, place: dict[int, int], speed: Roofline) -> Kernel:
        works = [self.nodes[index].work for index in chain.nodes]
        moved = sum(work.read + work.written for work in works) - chain.saved
        sources = {place[source] for index in chain.nodes for source, _ in self.nodes[index].sources}
        after = tuple(sorted(sources - {place[chain.nodes[0]]}))
        first = works[0]
        if first.engine == "MME":
            length = speed.matrix_ns(sum(work.flops for work in works), moved, first.dtype)
        else:
            length = speed.vector_ns(sum(work.elements for work in works), moved)
        return Kernel(first.engine, _kernel_name(works), works[-1].dtype, length, after)


def _chains(nodes: Sequence[Node]) -> list[_Chain]:
    """Group the nodes into chains: a pointwise node joins a source's chain if no other node must run in between."""
    chains: list[_Chain] = []
    chain_of: dict[int, _Chain] = {}
    for index, node in enumerate(nodes):
        chain = _joinable(node, nodes, chain_of)
        if chain is None:
            chain = _Chain([])
            chains.append(chain)
        inside = {source: size for source, size in node.sources if chain_of.get(source) is chain}
        chain.saved += min(sum(inside.values()), node.work.read)
        chain.nodes.append(index)
        chain_of[index] = chain
    return chains


def _joinable(node: Node, nodes: Sequence[Node], chain_of: dict[int, _Chain]) -> _Chain | None:
    if not node.work.pointwise:
        return None
    for source, _ in node.sources:
        chain = chain_of[source]
        others = [each for each, _ in node.sources if chain_of[each] is not chain]
        fits = nodes[source].work.pointwise and len(chain.nodes) < _LONGEST_CHAIN
        # A source that runs after the start of the chain may depend on the chain.
        if fits and all(other < chain.nodes[0] for other in others):
            return chain
    return None


def _kernel_name(works: Sequence[Work]) -> str:
    if len(works) == 1:
        return works[0].name
    names = "_".join(work.name for work in works)
    # The compiler gives the name of every fused kernel the same suffix, whatever its type.
    return f"fused_kernel_0x{hashlib.sha1(names.encode()).hexdigest()[:8].upper()}_C_f32"
