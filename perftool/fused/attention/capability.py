"""What the processor of this machine multiplies well, and whether a value may be read."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode


def _bfloat16_is_slow() -> bool:
    try:
        allowed = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):  # a torch without oneDNN, or one that asks in other words
        return True
    return not allowed or not (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


# A fixed set, asked once: a graph that is compiled or captured must not ask.
_SLOW = {torch.float16, *({torch.bfloat16} if _bfloat16_is_slow() else ())}


def multiplies_well(dtype: torch.dtype) -> bool:
    """Whether matrix products of a dtype run at full speed on this CPU.

    bfloat16 needs AVX512-BF16 or AMX, and oneDNN's leave to use them (`ONEDNN_MAX_CPU_ISA` can take it away);
    everywhere else such a product takes up to twenty times as long as one in float32. The answer rests on what
    the processor says of itself and not on a clock, so that one machine always computes the same.
    """
    return dtype not in _SLOW


def may_ask() -> bool:
    """Whether a value of a tensor on the CPU may be read: not while a graph is compiled or operators are recorded."""
    return not torch.compiler.is_compiling() and _get_current_dispatch_mode() is None
