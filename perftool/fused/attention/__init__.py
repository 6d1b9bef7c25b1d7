"""Attention with Gaudi's arguments, and the switch between its modes."""

from __future__ import annotations

from perftool.fused.attention.sdpa import FusedSDPA, enable_recompute_sdp, recompute_sdp_enabled, sdp_kernel

__all__ = ["FusedSDPA", "enable_recompute_sdp", "recompute_sdp_enabled", "sdp_kernel"]
