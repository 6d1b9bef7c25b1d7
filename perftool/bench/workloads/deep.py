"""A model of many small ops, one after the other."""

from __future__ import annotations

import torch
from torch import nn

from perftool.bench.harness.case import Setting


def deep_network(width: int, blocks: int, setting: Setting) -> nn.Module:
    """Maps [rows, width] to the same shape; each block has three layers."""
    torch.manual_seed(setting.seed)
    layers = [layer for _ in range(blocks) for layer in (nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())]
    return nn.Sequential(*layers).to(setting.device)
