"""The plain form of every fused op: the reference for comparisons, and the fallback implementation."""

from __future__ import annotations

from perftool.fused.reference.optimizers import (
    adagrad_,
    adamw_,
    clip_norm_,
    ema_,
    lamb_,
    lars_scale_,
    resource_apply_momentum_,
    sgd_,
    total_norm,
)

__all__ = [
    "adagrad_",
    "adamw_",
    "clip_norm_",
    "ema_",
    "lamb_",
    "lars_scale_",
    "resource_apply_momentum_",
    "sgd_",
    "total_norm",
]
