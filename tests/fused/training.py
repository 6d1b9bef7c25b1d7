"""Small sets of parameters with gradients, and a comparison of two sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

ODD_SHAPES = ((3,), (4, 5), (1,), (7, 2, 3), ())
MANY_SHAPES = ODD_SHAPES * 8


def parameters(
    shapes: Sequence[tuple[int, ...]] = ODD_SHAPES, dtype: torch.dtype = torch.float32, seed: int = 0
) -> list[nn.Parameter]:
    """Return random parameters from a fixed seed."""
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in shapes]


def give_gradients(*sets: Iterable[Tensor], seed: int, scale: float = 1.0) -> list[Tensor]:
    """Give every set a copy of the same random gradients, and return these gradients."""
    grads: list[Tensor] = []
    for params in sets:
        generator = torch.Generator().manual_seed(seed)
        grads = []
        for param in params:
            grads.append((torch.randn(param.shape, generator=generator) * scale).to(param.dtype))
            param.grad = grads[-1].clone()
    return grads


def assert_same(actual: Iterable[Tensor], expected: Iterable[Tensor], rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Compare two sets tensor by tensor in double precision."""
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one.detach().double(), other.detach().double(), rtol=rtol, atol=atol)
