"""Compares the results of two forms."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def largest_error(expected: Sequence[torch.Tensor], actual: Sequence[torch.Tensor]) -> float:
    """Return the largest absolute difference, relative to the largest value of the expected tensor; infinite if the
    shapes differ.

    NaN and infinite values must be the same in both.
    """
    if len(expected) != len(actual):
        return float("inf")
    return max((_error(a, b) for a, b in zip(expected, actual, strict=True)), default=0.0)


def _error(expected: torch.Tensor, actual: torch.Tensor) -> float:
    if expected.shape != actual.shape:
        return float("inf")
    if expected.numel() == 0:
        return 0.0
    a, b = expected.detach().double().cpu(), actual.detach().double().cpu()
    same = (a == b) | (a.isnan() & b.isnan())
    if bool((same | (a.isfinite() & b.isfinite())).logical_not().any()):
        return float("inf")
    difference = torch.where(same, 0.0, a - b).abs().max()
    scale = torch.where(a.isfinite(), a, 0.0).abs().max()
    return float(difference / scale) if scale > 0 else float(difference)
