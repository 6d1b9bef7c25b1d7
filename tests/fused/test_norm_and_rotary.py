"""FusedRMSNorm and the rotary embeddings against their definitions in double precision."""

from __future__ import annotations

import pytest
import torch

from perftool.fused import (
    FusedRMSNorm,
    RotaryPosEmbeddingHelperV1,
    RotaryPosEmbeddingHelperV2,
    RotaryPosEmbeddingMode,
    apply_rotary_pos_emb,
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_rms_norm(dtype):
    torch.manual_seed(0)
    x = torch.randn(3, 5, 16, dtype=dtype, requires_grad=True)
    gamma = torch.randn(16, requires_grad=True)
    out = FusedRMSNorm.apply(x, gamma, 1e-5)
    wide = [each.detach().double().requires_grad_() for each in (x, gamma)]
    expected = wide[0] / (wide[0].square().mean(-1, keepdim=True) + 1e-5).sqrt() * wide[1]
    assert out.dtype == dtype
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)
    for each in (out, expected):
        each.square().sum().backward()
    for one, other in zip((x, gamma), wide, strict=True):
        torch.testing.assert_close(one.grad.double(), other.grad, rtol=4 * tolerance, atol=8 * tolerance)


def turned(p, angles, mode):
    """Every pair of elements as a complex number times e^(i angle)."""
    half = p.size(-1) // 2
    first, second = (p[..., 0::2], p[..., 1::2]) if mode == "PAIRWISE" else (p[..., :half], p[..., half:])
    product = torch.complex(first, second) * torch.polar(torch.ones_like(angles), angles)
    parts = (product.real, product.imag)
    return torch.stack(parts, -1).flatten(-2) if mode == "PAIRWISE" else torch.cat(parts, -1)


def tables(angles, mode):
    wide = angles.repeat_interleave(2, -1) if mode == "PAIRWISE" else torch.cat((angles, angles), -1)
    return wide.cos(), wide.sin()


@pytest.mark.parametrize("mode", ["BLOCKWISE", "PAIRWISE"])
def test_given_positions(mode):
    torch.manual_seed(0)
    p, angles = torch.randn(2, 3, 4, 8, dtype=torch.float64), torch.randn(10, 4, dtype=torch.float64)
    places = torch.tensor([[0, 1, 2, 9], [5, 5, 0, 3]])
    cos, sin = tables(angles, mode)
    out = apply_rotary_pos_emb(p, cos, sin, places, mode=RotaryPosEmbeddingMode[mode])
    torch.testing.assert_close(out, turned(p, angles[places].unsqueeze(1), mode))
    if mode == "BLOCKWISE":
        torch.testing.assert_close(RotaryPosEmbeddingHelperV2.apply(p, cos[None, None], sin[None, None], places), out)


@pytest.mark.parametrize("offset", [0, 3])
def test_consecutive_positions(offset):
    torch.manual_seed(0)
    p, angles = torch.randn(4, 2, 3, 8, dtype=torch.float64), torch.randn(10, 1, 1, 4, dtype=torch.float64)
    out = RotaryPosEmbeddingHelperV1.apply(p, *tables(angles, "BLOCKWISE"), offset)
    torch.testing.assert_close(out, turned(p, angles[offset : offset + 4].expand(4, 2, 3, 4), "BLOCKWISE"))


def test_tables_take_the_dtype_of_the_vectors():
    p = torch.randn(2, 1, 3, 4, dtype=torch.bfloat16, requires_grad=True)
    table = torch.randn(8, 4)
    out = RotaryPosEmbeddingHelperV2.apply(p, table, table, torch.zeros(2, 3, dtype=torch.int64))
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert p.grad.shape == p.shape
