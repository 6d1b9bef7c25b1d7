"""Nodes of a recipe, as read from Gaudi's trace analyzer and graph compiler."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeRun:
    """A run of a node of a Gaudi recipe, from Intel's trace analyzer; None for missing values.

    ``run`` counts from 1. ``lanes`` lanes of one engine work on the run, each for ``min_engine_ns`` to
    ``max_engine_ns``. Shapes are text. ``expected_ns`` is the graph compiler's estimate, ``utilisation`` (0 to 1) the
    engine's utilisation.
    """

    engine: str
    node: str
    run: int
    op: str
    dur_ns: int
    active_ns: int
    node_id: int | None = None
    ts_ns: int | None = None
    exposed_ns: int | None = None
    activations: int | None = None
    lanes: int | None = None
    min_engine_ns: int | None = None
    max_engine_ns: int | None = None
    avg_engine_ns: int | None = None
    input_shapes: str | None = None
    output_shapes: str | None = None
    dtype: str | None = None
    expected_ns: int | None = None
    utilisation: float | None = None
    strategy: str | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class GraphTensor:
    """A tensor of a compiled Gaudi graph; the slowest dimension comes first. ``memory`` is SRAM or DRAM."""

    shape: tuple[int, ...]
    dtype: str | None
    bits: int | None
    memory: str | None


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of a compiled Gaudi graph, made by the graph compiler from ops, with its estimates.

    ``guid`` names its kernel, ``fused_ops`` the kernels of the nodes fused into it, ``origins`` the nodes of the
    model's graph that it comes from. ``expected_cycles`` counts cycles of the MME, and ``utilisation`` (0 to 1) is the
    share of these cycles that compute; None where the compiler has no estimate.
    """

    recipe: int | None
    recipe_name: str | None
    node: str
    node_id: int | None
    engine: str
    guid: str
    inputs: tuple[GraphTensor, ...] = ()
    outputs: tuple[GraphTensor, ...] = ()
    expected_cycles: int | None = None
    expected_dma_us: float | None = None
    utilisation: float | None = None
    strategy: str | None = None
    fused_ops: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class CompilerAdvice:
    """Advice from one check of Gaudi's graph compiler, given ``count`` times; ``priority`` is high or low.

    ``fcd_bytes`` is the length of the tensor's contiguous parts in memory, ``reads`` the number of times the tensor is
    read.
    """

    priority: str
    check: str
    text: str
    tensor: str | None = None
    node: str | None = None
    size_bytes: int | None = None
    fcd_bytes: int | None = None
    reads: int | None = None
    memory: str | None = None
    count: int = 1
    rank: int | None = None
    line: int | None = None
