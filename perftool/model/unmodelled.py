"""Reasons why ops and kernels have no cost model."""

from __future__ import annotations

import re

from perftool.model.efficiency import OpRate

NO_MODEL = "no cost model for this op"
WITHOUT_SHAPES = "shapes not recorded"
WITHOUT_ARGUMENTS = "arguments not recorded"
_WITHOUT_OP = {"graph": "captured: no shapes", "recipe": "recipe: the trace has no shapes"}
# The names of Triton's ``matmul_ogs``, vLLM's matmul for mixtures of experts, contain the types (of result,
# tokens, weights) and the tile.
_OGS = re.compile(r"_matmul_ogs_[NT]+_\w+?x(\w+?)x(\w+?)_(\d+)x(\d+)x(\d+)x\d+")
_WHY = tuple(
    (re.compile(pattern), reason)
    for pattern, reason in (
        (
            r"SplitLookup|embedding_(?:backward_)?codegen|codegen_lookup|embedding_codegen",
            "widths of its tables and numbers of rows: not recorded",
        ),
        (r"unified_attention.*\(window\)$", "size of its window: not recorded"),
        (r"unified_attention", "lengths of its sequences: no annotation has them"),
        (r"::moe_forward", "sizes of its weights: not recorded"),
        (r"^triton_tem_", "a template whose arguments do not show its sizes"),
        (r"^triton_", "it selects rows by index: the rows are not recorded"),
    )
)


def why_no_model(op: OpRate) -> str:
    """Why the operations and bytes of ``op`` are unknown; empty if they are known, and for collectives."""
    if op.bytes is not None or op.kind == "collective":
        return ""
    if op.source != "op":
        return _WITHOUT_OP.get(op.source, "no op launched it") + _named(op.name)
    if op.input_dims is None:
        return WITHOUT_SHAPES
    special = next((reason for pattern, reason in _WHY if pattern.search(op.name)), "")
    if special or op.kind is None:
        return special or NO_MODEL
    # For a list of tensors, traces have the shapes but not the types.
    return "types in its list of tensors: not recorded" if "TensorList" in (op.input_types or "") else WITHOUT_ARGUMENTS


def _named(kernel: str) -> str:
    """The types and tile sizes in the name of ``kernel``, in brackets; empty for other names."""
    found = _OGS.match(kernel)
    return f" ({found[1]} by {found[2]}, tiles of {found[3]} x {found[4]} x {found[5]})" if found else ""
