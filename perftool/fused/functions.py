"""Gaudi ops for which PyTorch has a single op, under Gaudi's names."""

from __future__ import annotations

from enum import Enum
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from perftool.fused.dispatch import choose, native_op, register_everywhere

for _op in ("CTCLoss", "CustomSoftmax", "FusedRMSNorm"):
    register_everywhere(_op)


class AppliedOp:
    """A class with an `apply` that accepts positional arguments, like a `torch.autograd.Function`.

    It is not a subclass of Function: torch.compile replaces the `apply` of every such subclass with its own, and
    cannot capture an `apply` that chooses among algorithms.
    """

    def __init_subclass__(cls) -> None:
        """Raise TypeError if a subclass defines `forward` or `backward`, because these would never be called."""
        for name in ("forward", "backward"):
            if name in cls.__dict__:
                raise TypeError(f"{cls.__name__}.{name} would never be called: this op has only `apply`")


def natively_applied(op: str, *arguments: Any) -> Tensor | None:
    """Call Gaudi's class if that class is selected for the device of the first argument; otherwise return None."""
    if choose(op, arguments[0].device.type) != "habana":
        return None
    result: Tensor = native_op(op).apply(*arguments)
    return result


class CTCLoss(AppliedOp):
    """Connectionist temporal classification, like `torch.nn.functional.ctc_loss`."""

    @staticmethod
    def apply(
        log_probs: Tensor,
        targets: Tensor,
        input_lengths: Tensor,
        target_lengths: Tensor,
        blank: int = 0,
        reduction: str = "mean",
        zero_infinity: bool = False,
        /,
    ) -> Tensor:
        """Return the loss, 0-dim unless `reduction` is "none". Shapes and errors are as in PyTorch."""
        arguments = (log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
        loss = natively_applied("CTCLoss", *arguments)
        return F.ctc_loss(*arguments) if loss is None else loss


class CustomSoftmax(AppliedOp):
    """Softmax over the last dimension of bfloat16 tensors."""

    @staticmethod
    def apply(inp: Tensor, flavor: int, /) -> Tensor:
        """Return the softmax of `inp` [..., size]. On a Gaudi, `flavor` 0 is exact, and 1 and 2 are faster and less
        exact; here all three are exact. Raise ValueError for other dtypes and flavors.
        """
        if (outputs := natively_applied("CustomSoftmax", inp, flavor)) is not None:
            return outputs
        if inp.dtype != torch.bfloat16:
            raise ValueError(f"CustomSoftmax needs a bfloat16 tensor, not {inp.dtype}")
        if flavor not in (0, 1, 2):
            raise ValueError(f"flavor must be 0, 1 or 2, not {flavor}")
        return torch.softmax(inp, -1)


class RmsNormBwdMode(Enum):
    """The values of `bwd_mode`: how a Gaudi splits the backward pass."""

    DEFAULT = 0
    STATIC_CASE_GC_SLICE_ENABLED = 1


class FusedRMSNorm(AppliedOp):
    """Normalisation by the root of the mean square; call `FusedRMSNorm.apply` as on Gaudi."""

    @staticmethod
    def apply(
        data_in: Tensor,
        gamma: Tensor,
        eps: float,
        use_stages: bool = True,
        bwd_mode: int = 0,
        fast_math: bool = False,
        /,
    ) -> Tensor:
        """Normalise the rows of `data_in` [..., size] and multiply them by `gamma` [size].

        If the dtypes differ, the wider one is used for the computation and the result, as on a Gaudi: bfloat16 data
        with a float32 `gamma` become float32. `use_stages`, `bwd_mode` and `fast_math` choose between kernels on a
        Gaudi and have no effect elsewhere. Raise ValueError if `gamma` has the wrong size.
        """
        arguments = data_in, gamma, eps, use_stages, bwd_mode, fast_math
        if (outputs := natively_applied("FusedRMSNorm", *arguments)) is not None:
            return outputs
        if gamma.shape != data_in.shape[-1:]:
            raise ValueError(
                f"gamma must have shape [{data_in.size(-1)}], like a row of the data, not {list(gamma.shape)}"
            )
        dtype = torch.promote_types(data_in.dtype, gamma.dtype)
        return F.rms_norm(data_in.to(dtype), gamma.shape, gamma.to(dtype), eps)
