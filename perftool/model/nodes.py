"""Nodes of Gaudi recipes, as reported by the trace analyzer and the graph compiler."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeRun:
    """One run of a node in a Gaudi recipe, from Intel's trace analyzer. Missing values are None.

    ``run`` is the number of the run, starting at 1. ``lanes`` lanes of the engine work on it, each for
    ``min_engine_ns`` to ``max_engine_ns``. Shapes are text. ``expected_ns`` is estimated by the graph compiler.
    ``utilisation`` (0 to 1) is the utilisation of the engine.
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
    """A tensor in a compiled Gaudi graph. The slowest-varying dimension comes first. ``memory`` is SRAM or DRAM."""

    shape: tuple[int, ...]
    dtype: str | None
    bits: int | None
    memory: str | None


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node that Gaudi's graph compiler built from ops, with the compiler's estimates.

    ``guid`` identifies its kernel, ``fused_ops`` the kernels of the nodes fused into it, and ``origins`` the nodes of
    the model's graph that it comes from. ``expected_cycles`` is in MME cycles, and ``utilisation`` (0 to 1) is the
    share of these cycles spent computing. Both are None if the compiler has no estimate.
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

    ``fcd_bytes`` is the length of the tensor's contiguous parts in memory. ``reads`` is how often the tensor is read.
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
