"""Reasons why ops and kernels have no cost model."""

from __future__ import annotations

import re

from perftool.model.efficiency import OpRate

NO_MODEL = "no cost model for this op"
WITHOUT_SHAPES = "shapes not recorded"
WITHOUT_ARGUMENTS = "arguments not recorded"
_WITHOUT_OP = {"graph": "captured graph without shapes", "recipe": "recipe without shapes"}
# vLLM uses Triton's ``matmul_ogs`` for mixtures of experts. Its kernel names contain the dtypes (of the result, the
# tokens and the weights) and the tile size.
_DTYPE = r"((?:mx)?[^\W_x]+)"
_OGS = re.compile(rf"_matmul_ogs_[NT]+_{_DTYPE}x{_DTYPE}x{_DTYPE}_(\d+)x(\d+)x(\d+)x\d+")
_WHY = tuple(
    (re.compile(pattern), reason)
    for pattern, reason in (
        (
            r"SplitLookup|embedding_(?:backward_)?codegen|codegen_lookup|embedding_codegen",
            "table widths and row counts not recorded",
        ),
        (r"unified_attention.*\(window\)$", "window size not recorded"),
        (r"unified_attention", "sequence lengths not recorded"),
        (r"::moe_forward", "weight sizes not recorded"),
        (r"^triton_tem_", "sizes not shown by the arguments of the template"),
        (r"^triton_", "selects rows by index, and the indices are not recorded"),
    )
)


def why_no_model(op: OpRate) -> str:
    """Return why the operations and bytes of ``op`` are unknown, or "" if they are known or ``op`` is a collective."""
    if op.bytes is not None or op.kind == "collective":
        return ""
    if op.source != "op":
        return _WITHOUT_OP.get(op.source, "not launched by an op") + _named(op.name)
    if op.input_dims is None:
        return WITHOUT_SHAPES
    special = next((reason for pattern, reason in _WHY if pattern.search(op.name)), "")
    if special or op.kind is None:
        return special or NO_MODEL
    # For a list of tensors, traces contain the shapes but not the dtypes.
    return "dtypes of its tensor list not recorded" if "TensorList" in (op.input_types or "") else WITHOUT_ARGUMENTS


def _named(kernel: str) -> str:
    """Return the dtypes and tile size in the name of ``kernel``, in brackets. The result is empty if it is not
    ``matmul_ogs``.
    """
    found = _OGS.match(kernel)
    return f" ({found[2]} by {found[3]}, tiles of {found[4]} x {found[5]} x {found[6]})" if found else ""
