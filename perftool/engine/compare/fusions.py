"""Finds work that one run does in a fused op and the other in several ops."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from perftool.engine.compare.op_rates import op_name
from perftool.model.diff import FusedSide, FusionChange
from perftool.model.efficiency import OpRate


@dataclass(frozen=True)
class _Fusion:
    """Patterns for ``work`` that may be fused. ``fused`` matches an op that does all of it. In the other run, each of
    ``needed`` must match an op, and ``closes`` is the advice for that run.
    """

    work: str
    fused: str
    needed: tuple[str, ...]
    closes: str


_FUSIONS = (
    _Fusion(
        "attention", r"attention$|attention_(forward|backward)|fmha|flash_attn", (r"^(bad)?bmm$", r"^_softmax$"),
        "call F.scaled_dot_product_attention in that run as well",
    ),
    _Fusion(
        "normalisation", r"layer_norm$|rms_norm$", (r"^(pow|square|var|var_mean)$", r"^(var_)?mean$", r"^rsqrt$"),
        "call F.rms_norm or F.layer_norm in that run, or compile it",
    ),
    _Fusion(
        "optimizer", r"^_fused_(adam|adamw|sgd|adagrad)_$", (r"addcdiv_$", r"(lerp|addcmul)_$"),
        "pass fused=True to the optimizer in that run as well",
    ),
    _Fusion(
        "gated activation", r"silu_and_mul|gelu_(tanh_)?and_mul", (r"^(silu|gelu)$", r"^mul$"),
        "compile the activation in that run, so that the gate is applied in the same pass",
    ),
)  # fmt: skip
_GENERATED = re.compile(r"^triton_(?:poi|red|per|for)_fused_(\w+?)_\d+$")
# At most this many characters of generated kernel names are searched, because each op is looked up in all of them.
_MOST_TEXT = 1 << 18
# At least one kernel must fuse this many of the ops that the other side runs separately.
_LEAST_PARTS = 2
# The run with the fused op may still call the separate ops elsewhere in the model, but at most this many times as often
# as the other run.
_FEWER = 0.5


def fusion_changes(
    base: Sequence[OpRate], new: Sequence[OpRate], base_steps: int, new_steps: int
) -> tuple[FusionChange, ...]:
    """Return the work that only one side fuses, largest difference first. Times are per step."""
    sides = _per_step(base, base_steps), _per_step(new, new_steps)
    found = [
        change
        for fused, separate in ((0, 1), (1, 0))
        for change in (
            *_known(sides[fused], sides[separate], fused == 0),
            *_generated(sides[fused], sides[separate], fused == 0),
        )
    ]
    return tuple(sorted(found, key=lambda change: (-abs(change.apart.ns - change.fused.ns), change.work)))


_Totals = dict[str, tuple[float, float]]


def _per_step(ops: Sequence[OpRate], steps: int) -> _Totals:
    """Return the time and calls per step, by op name without device-specific parts."""
    totals: _Totals = {}
    for op in ops:
        if op.source == "op":
            ns, calls = totals.get(op_name(op), (0.0, 0.0))
            totals[op_name(op)] = (ns + op.kernel_ns / steps, calls + op.calls / steps)
    return totals


def _known(fused: _Totals, separate: _Totals, on_base: bool) -> list[FusionChange]:
    changes = []
    for fusion in _FUSIONS:
        joined = [name for name in fused if re.search(fusion.fused, name)]
        parts = [[name for name in separate if re.search(needed, name)] for needed in fusion.needed]
        if not joined or any(re.search(fusion.fused, name) for name in separate) or not all(parts):
            continue
        if all(_calls(fused, names) <= _FEWER * _calls(separate, names) for names in parts):
            named = sorted({name for names in parts for name in names})
            changes.append(
                FusionChange(fusion.work, on_base, _side(fused, joined), _side(separate, named), fusion.closes)
            )
    return changes


def _generated(fused: _Totals, separate: _Totals, on_base: bool) -> list[FusionChange]:
    """Return the generated kernels that replace ops that the other side runs separately. The kernel names list these
    ops.
    """
    kernels = {name: found[1] for name in fused if (found := _GENERATED.match(name))}
    if not kernels or any(_GENERATED.match(name) for name in separate):
        return []
    texts = "\n".join(f"_{listed}_" for listed in kernels.values())[:_MOST_TEXT].split("\n")
    fewer = [name for name in separate if _calls(fused, [name]) <= _FEWER * _calls(separate, [name])]
    by_kernel = [{name for name in fewer if f"_{name.strip('_')}_" in text} for text in texts]
    if max(map(len, by_kernel)) < _LEAST_PARTS:
        return []
    parts = sorted(set().union(*by_kernel))
    return [
        FusionChange(
            "generated kernels",
            on_base,
            _side(fused, sorted(kernels)),
            _side(separate, parts),
            "compile the model in that run as well",
        )
    ]


def _calls(totals: _Totals, names: Sequence[str]) -> float:
    return sum(totals[name][1] for name in names if name in totals)


def _side(totals: _Totals, names: Sequence[str]) -> FusedSide:
    return FusedSide(tuple(names), sum(totals[name][0] for name in names), sum(totals[name][1] for name in names))
