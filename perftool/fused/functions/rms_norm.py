"""`FusedRMSNorm`: x / sqrt(mean(x*x) + eps) * gamma over the last dimension (https://arxiv.org/abs/1910.07467)."""

from __future__ import annotations

from enum import Enum

import torch
from torch.nn import functional as F

from perftool.fused.functions.applied import AppliedOp, natively_applied, register_applied

OP, _MODULE = "FusedRMSNorm", "hpex.normalization"

register_applied(OP, _MODULE)


class RmsNormBwdMode(Enum):
    """How a Gaudi cuts the backward pass into pieces; `bwd_mode` takes the value."""

    DEFAULT = 0
    STATIC_CASE_GC_SLICE_ENABLED = 1


class FusedRMSNorm(AppliedOp):
    """Normalisation by the root of the mean square; call `FusedRMSNorm.apply` as on Gaudi."""

    @staticmethod
    def apply(
        data_in: torch.Tensor,
        gamma: torch.Tensor,
        eps: float,
        use_stages: bool = True,
        bwd_mode: int = 0,
        fast_math: bool = False,
        /,
    ) -> torch.Tensor:
        """The rows of `data_in` [..., size] normalised, times `gamma` [size].

        Two dtypes are computed in, and give, the wider of them, as on a Gaudi: bfloat16 data with a float32
        `gamma` become float32. `use_stages`, `bwd_mode` and `fast_math` choose between kernels of a Gaudi
        and change nothing elsewhere. ValueError for a `gamma` of another size.
        """
        if (outputs := natively_applied(OP, _MODULE, data_in, gamma, eps, use_stages, bwd_mode, fast_math)) is not None:
            return outputs
        if gamma.shape != data_in.shape[-1:]:
            raise ValueError(f"gamma needs the size of the rows, {data_in.size(-1)}, not {list(gamma.shape)}")
        dtype = torch.promote_types(data_in.dtype, gamma.dtype)
        return F.rms_norm(data_in.to(dtype), gamma.shape, gamma.to(dtype), eps)
