"""AdamW with moments in another dtype than the parameters: cast, update, cast back, a piece at a time.

FP8 moments are stored multiplied by a power of two per tensor, which brings their largest element near the
largest number of the format. They save memory only: on a CPU the casts cost several times the update.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from perftool.fused.optimizers.kernels import PIECE, Kernel, pieces

LARGEST = {torch.float8_e4m3fn: 240.0, torch.float8_e5m2: 57344.0}
"""Largest number of each scaled format; Gaudi's E4M3 ends at 240, not at the 448 of other devices."""

Tensors = list[Tensor]


def is_scaled(dtype: torch.dtype) -> bool:
    """Whether moments of this dtype come with a scale."""
    return dtype in LARGEST


def compute_dtype(param: Tensor, moment: Tensor) -> torch.dtype:
    """The dtype of the arithmetic: what parameter and first moment promote to, at least float32 for FP8."""
    return torch.promote_types(param.dtype, torch.float32 if is_scaled(moment.dtype) else moment.dtype)


def step_cast(
    kernel: Kernel, params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors, **options: Any
) -> None:
    """Run the `adamw` kernel on operands of different dtypes."""
    dtype = compute_dtype(params[0], exp_avgs[0])
    for run in _runs(list(zip(params, grads, exp_avgs, exp_avg_sqs, strict=True))):
        operands = [list(each) for each in zip(*run, strict=True)]
        casts = [each if each[0].dtype == dtype else [view.to(dtype) for view in each] for each in operands]
        kernel(*casts, **options)
        for views, wide in zip(operands, casts, strict=True):
            for view, cast in zip(views, wide, strict=True) if views is not wide else ():
                view.copy_(cast)


def _runs(rows: list[tuple[Tensor, ...]]) -> Iterator[list[tuple[Tensor, ...]]]:
    """Corresponding views, as many at a time as make up a piece."""
    run: list[tuple[Tensor, ...]] = []
    elements = 0
    for tensors in rows:
        for views in pieces(tensors) if tensors[0].numel() > PIECE else [tensors]:
            if run and elements + views[0].numel() > PIECE:
                yield run
                run, elements = [], 0
            run.append(views)
            elements += views[0].numel()
    if run:
        yield run


def step_scaled(
    kernel: Kernel,
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    scales: tuple[Tensors, Tensors],
    **options: Any,
) -> None:
    """Run the `adamw` kernel on FP8 moments; `scales` hold one tensor of one element per moment and are updated."""
    dtype = compute_dtype(params[0], exp_avgs[0])
    for param, grad, m, v, m_scale, v_scale in zip(params, grads, exp_avgs, exp_avg_sqs, *scales, strict=True):
        weight, gradient = param.to(dtype), grad.to(dtype)
        first, second = m.to(dtype).div_(m_scale.view(())), v.to(dtype).div_(v_scale.view(()))
        kernel([weight], [gradient], [first], [second], **options)
        if weight is not param:
            param.copy_(weight)
        store(first, m, m_scale)
        store(second, v, v_scale)


def store(values: Tensor, moment: Tensor, scale: Tensor) -> None:
    """Write `values` into an FP8 moment with a new scale 2^floor(log2(LARGEST/amax)).

    The old scale stays where that is not a positive number: for all zeros, and for infinities and NaN.
    """
    if values.numel():
        largest = values.abs().amax().float()
        fresh = torch.exp2(torch.floor(torch.log2(LARGEST[moment.dtype] / largest)))
        scale.copy_(torch.where(torch.isfinite(fresh) & (fresh > 0), fresh, scale))
    moment.copy_(values * scale.view(()))
