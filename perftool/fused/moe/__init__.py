"""Mixture of experts with Gaudi's arguments."""

from __future__ import annotations

from perftool.fused.moe.experts import mixture_of_experts

__all__ = ["mixture_of_experts"]
