"""The sizes of a call's matrices, filters or sequences, which determine how well it fills a device. A convolution is
treated as a matmul (cuDNN, "implicit GEMM") with one row per position of the result, one column per filter, and one
term per weight of a filter."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from perftool.op_costs.attention import ATTENTION, AttentionLayout
from perftool.op_costs.call import Call, NoModelError, Tensor
from perftool.op_costs.convolutions import CONVOLUTIONS, WHOLE, Convolution
from perftool.op_costs.experts import MIXTURES
from perftool.op_costs.lengths import lengths_of
from perftool.op_costs.model import call_of
from perftool.op_costs.quantised import QUANTISED
from perftool.op_costs.seen import Results
from perftool.op_costs.serving import PAGED, SERVING_ATTENTION

# The position of a matmul's first operand.
_FIRST = {
    "aten::mm": 0, "aten::bmm": 0, "aten::_scaled_mm": 0, "aten::_int_mm": 0, "aten::addmm": 1, "aten::addmm_": 1,
    "aten::_addmm_activation": 1, "aten::baddbmm": 1, "aten::baddbmm_": 1,
}  # fmt: skip
_GROUPED = ("aten::_grouped_mm", "aten::_scaled_grouped_mm")


@dataclass(frozen=True)
class Sizes:
    """The sizes of one call. A size is None if the op does not have it, or if the recording does not show it.

    ``batch`` is the number of matmuls, each with ``m`` rows, ``n`` columns and ``k`` terms. ``groups`` is the number of
    groups in a grouped matmul or convolution, or of experts in a mixture. A convolution has ``channels`` in its input,
    ``filter_size`` (elements of a filter in one channel), ``dilation`` and ``transposed``; attention has ``heads``,
    ``queries``, ``keys`` and ``head_size``.
    """

    batch: int | None = None
    m: int | None = None
    n: int | None = None
    k: int | None = None
    groups: int | None = None
    channels: int | None = None
    filter_size: int | None = None
    dilation: int | None = None
    transposed: bool | None = None
    heads: int | None = None
    queries: int | None = None
    keys: int | None = None
    head_size: int | None = None


def sizes_of(
    name: str,
    dims: str | None,
    types: str | None,
    scalars: str | None,
    outer: str | None = None,
    seen: Results | None = None,
    around: str | None = None,
    grids: str | None = None,
) -> Sizes:
    """Return the problem sizes of a call, from the same records as ``cost_of``. If any is unknown, all are None."""
    try:
        call = call_of(dims, types, scalars, None, outer, seen, around, grids)
        if name in _FIRST:
            return _product(call.tensor(_FIRST[name]), call.tensor(_FIRST[name] + 1))
        if name == "aten::linear":
            x, weight = call.tensor(0), call.tensor(1)
            return _product(x.shaped((prod(x.dims[:-1]), x.dims[-1])), weight.shaped(weight.dims[::-1]))
        if name in _GROUPED:
            return _grouped(call.tensor(0), call.tensor(1))
        if name in QUANTISED:
            m, n, k = QUANTISED[name].sizes(call)
            return Sizes(batch=1, m=m, n=n, k=k)
        if name in MIXTURES:
            mixture = MIXTURES[name](call)
            return Sizes(batch=1, m=mixture.rows, n=mixture.up, k=mixture.hidden, groups=mixture.experts)
        if name in PAGED:
            return _paged(call)
        if name in WHOLE:
            return _gradients(call, *WHOLE[name])
        layout = CONVOLUTIONS.get(name) or ATTENTION.get(name) or SERVING_ATTENTION.get(name)
        if isinstance(layout, Convolution):
            return _convolution(call, layout)
        if isinstance(layout, AttentionLayout):
            return _attention(call, layout)
    except (NoModelError, ValueError, IndexError):
        pass
    return Sizes()


def _product(a: Tensor, b: Tensor) -> Sizes:
    if len(a.dims) not in (2, 3) or len(b.dims) != len(a.dims):
        raise NoModelError("not a matmul")
    return Sizes(batch=prod(a.dims[:-2]), m=a.dims[-2], n=b.dims[-1], k=a.dims[-1])


def _grouped(a: Tensor, b: Tensor) -> Sizes:
    """Return the sizes of a grouped matmul. ``m`` is the mean number of rows per group, at least one."""
    if len(a.dims) != 2 or len(b.dims) != 3 or not b.dims[0]:
        raise NoModelError("groups along another dimension")
    return Sizes(batch=1, m=max(a.dims[0] // b.dims[0], 1), n=b.dims[2], k=a.dims[1], groups=b.dims[0])


def _convolution(call: Call, layout: Convolution) -> Sizes:
    x, weight = call.tensor(0), call.tensor(1)
    return _as_product(x.dims, weight.dims, layout.result(call, x, weight), layout.backwards(call), layout.step(call))


def _gradients(call: Call, x: int, weight: int, result: int) -> Sizes:
    """Return the sizes of the convolution. The matmuls for both gradients have the same three sizes."""
    dilation = max(call.numbers(6), default=1) if call.recorded(6) else None
    transposed = call.flag(7) if call.recorded(7) else False
    return _as_product(call.tensor(x).dims, call.tensor(weight).dims, call.tensor(result).dims, transposed, dilation)


def _as_product(
    x: tuple[int, ...], weight: tuple[int, ...], result: tuple[int, ...], transposed: bool, dilation: int | None
) -> Sizes:
    inputs, filter_size = x[1], prod(weight[2:])
    groups = 1 if transposed else inputs // max(weight[1], 1)
    places = (x if transposed else result)[2:]
    return Sizes(
        batch=1, m=x[0] * prod(places), n=weight[0] // max(groups, 1), k=weight[1] * filter_size, groups=groups,
        channels=inputs, filter_size=filter_size, dilation=dilation, transposed=transposed,
    )  # fmt: skip


def _attention(call: Call, layout: AttentionLayout) -> Sizes:
    q, k = call.tensor(layout.query), call.tensor(layout.query + 1)
    if len(q.dims) != 4 or len(k.dims) != 4:
        raise NoModelError("sequences of several lengths")
    length = 3 - layout.heads
    return Sizes(
        batch=q.dims[0], heads=q.dims[layout.heads], queries=q.dims[length], keys=k.dims[length], head_size=q.dims[3]
    )


def _paged(call: Call) -> Sizes:
    """Return the sizes as if all sequences in the batch formed a single sequence."""
    q, lengths = call.tensor(0), lengths_of(call.around)
    return Sizes(batch=1, heads=q.dims[1], queries=lengths.queries, keys=lengths.keys, head_size=q.dims[2])
