"""The plain form of every fused op: the reference for comparisons, and the fallback implementation.

That of an optimizer stands in the optimizer's own file.
"""

from __future__ import annotations

from perftool.fused.optimizers.adagrad import adagrad_
from perftool.fused.optimizers.adamw import adamw_
from perftool.fused.optimizers.clip_norm import clip_norm_
from perftool.fused.optimizers.clip_norm import plain_total_norm as total_norm
from perftool.fused.optimizers.ema import ema_
from perftool.fused.optimizers.lamb import lamb_
from perftool.fused.optimizers.lars import lars_scale_
from perftool.fused.optimizers.resource_momentum import resource_apply_momentum_
from perftool.fused.optimizers.sgd import sgd_

__all__ = ["adagrad_", "adamw_", "clip_norm_", "ema_", "lamb_", "lars_scale_", "resource_apply_momentum_", "sgd_"]
__all__ += ["total_norm"]
