"""Gaudi's kernels that compute what PyTorch computes, under their names: one call each."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from perftool.fused.functions.applied import AppliedOp, natively_applied, register_applied

_KERNELS = "hpex.kernels"

for _op in ("CTCLoss", "CustomSoftmax"):
    register_applied(_op, _KERNELS)


class CTCLoss(AppliedOp):
    """Connectionist temporal classification, as `torch.nn.functional.ctc_loss`."""

    @staticmethod
    def apply(
        log_probs: torch.Tensor,
        targets: torch.Tensor,
        input_lengths: torch.Tensor,
        target_lengths: torch.Tensor,
        blank: int = 0,
        reduction: str = "mean",
        zero_infinity: bool = False,
        /,
    ) -> torch.Tensor:
        """The loss, 0-dim unless `reduction` is "none"; shapes and errors as in PyTorch."""
        arguments = (log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
        loss = natively_applied("CTCLoss", _KERNELS, *arguments)
        return F.ctc_loss(*arguments) if loss is None else loss


class CustomSoftmax(AppliedOp):
    """Softmax over the last dimension of bfloat16 tensors."""

    @staticmethod
    def apply(inp: torch.Tensor, flavor: int, /) -> torch.Tensor:
        """The softmax of `inp` [..., size]. `flavor` 0 is exact, and 1 and 2 are faster and less exact on a Gaudi;
        here all three are exact. ValueError for another dtype or flavor.
        """
        if (outputs := natively_applied("CustomSoftmax", _KERNELS, inp, flavor)) is not None:
            return outputs
        if inp.dtype != torch.bfloat16:
            raise ValueError(f"CustomSoftmax needs a bfloat16 tensor, not {inp.dtype}")
        if flavor not in (0, 1, 2):
            raise ValueError(f"flavor must be 0, 1 or 2, not {flavor}")
        return torch.softmax(inp, -1)
