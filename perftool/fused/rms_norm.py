"""`FusedRMSNorm`: x / sqrt(mean(x*x) + eps) * gamma over the last dimension."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from perftool.fused.dispatch import ANY_DEVICE, Implementation, always, choose, native, register, register_native

OP = "FusedRMSNorm"

register_native(OP, "hpex.normalization", OP)
register(Implementation(OP, "fast", ANY_DEVICE, always))


class FusedRMSNorm:
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
        """The rows of `data_in` [..., size] normalised, times `gamma` [size], in the dtype of `data_in`.

        `use_stages`, `bwd_mode` and `fast_math` choose between kernels of a Gaudi and change nothing elsewhere.
        """
        if choose(OP, data_in.device.type).name == "habana":
            outputs: torch.Tensor = native("hpex.normalization", OP).apply(
                data_in, gamma, eps, use_stages, bwd_mode, fast_math
            )
            return outputs
        return F.rms_norm(data_in, gamma.shape, gamma.to(data_in.dtype), eps)
