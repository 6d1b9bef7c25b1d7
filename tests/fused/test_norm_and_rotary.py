"""Compares FusedRMSNorm, the rotary embeddings, CTCLoss and CustomSoftmax with their definitions in double
precision.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perftool.fused import (
    CTCLoss,
    CustomSoftmax,
    FusedRMSNorm,
    FusedSDPA,
    RotaryPosEmbeddingHelperV1,
    RotaryPosEmbeddingHelperV2,
    RotaryPosEmbeddingHelperV3,
    RotaryPosEmbeddingMode,
    apply_rotary_pos_emb,
)


@pytest.mark.parametrize(
    ("dtype", "of_gamma", "result"),
    [
        (torch.float32, torch.float32, torch.float32),
        (torch.bfloat16, torch.bfloat16, torch.bfloat16),
        (torch.float16, torch.float16, torch.float16),
        (torch.bfloat16, torch.float32, torch.float32),
        (torch.float64, torch.float32, torch.float64),
    ],
)
def test_rms_norm(dtype, of_gamma, result):
    """If the dtypes differ, the result has the wider dtype, as on a Gaudi."""
    torch.manual_seed(0)
    x = torch.randn(3, 5, 16, dtype=dtype, requires_grad=True)
    gamma = torch.randn(16, dtype=of_gamma, requires_grad=True)
    out = FusedRMSNorm.apply(x, gamma, 1e-5)
    wide = [each.detach().double().requires_grad_() for each in (x, gamma)]
    expected = wide[0] / (wide[0].square().mean(-1, keepdim=True) + 1e-5).sqrt() * wide[1]
    assert out.dtype == result
    tolerance = {torch.bfloat16: 2e-2, torch.float16: 4e-3}.get(dtype, 1e-5)
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)
    for each in (out.double(), expected):
        each.square().sum().backward()
    for one, other in zip((x, gamma), wide, strict=True):
        assert one.grad.dtype == one.dtype
        torch.testing.assert_close(one.grad.double(), other.grad, rtol=4 * tolerance, atol=8 * tolerance)


@settings(max_examples=12)
@given(shape=st.lists(st.integers(1, 7), max_size=3), size=st.integers(1, 40), eps=st.floats(1e-8, 1e-2))
def test_rms_norm_of_any_shape(shape, size, eps):
    torch.manual_seed(0)
    x, gamma = torch.randn(*shape, size, dtype=torch.float64), torch.randn(size, dtype=torch.float64)
    expected = x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * gamma
    torch.testing.assert_close(FusedRMSNorm.apply(x, gamma, eps), expected)


def turned(p, angles, mode):
    """Return each pair of elements, multiplied as a complex number by e^(i angle)."""
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


@settings(max_examples=12)
@given(
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    tokens=st.integers(1, 9),
    half=st.integers(1, 9),
    mode=st.sampled_from(["BLOCKWISE", "PAIRWISE"]),
)
def test_any_shape_with_given_positions(batch, heads, tokens, half, mode):
    torch.manual_seed(0)
    p = torch.randn(batch, heads, tokens, 2 * half, dtype=torch.float64, requires_grad=True)
    angles, places = torch.randn(12, half, dtype=torch.float64), torch.randint(0, 12, (batch, tokens))
    out = apply_rotary_pos_emb(p, *tables(angles, mode), places, mode=RotaryPosEmbeddingMode[mode])
    expected = turned(p, angles[places].unsqueeze(1).expand(-1, heads, -1, -1), mode)
    torch.testing.assert_close(out, expected)
    grads = [torch.autograd.grad(each.square().sum(), p)[0] for each in (out, expected)]
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("offset", [0, 3])
def test_consecutive_positions(offset):
    torch.manual_seed(0)
    p, angles = torch.randn(4, 2, 3, 8, dtype=torch.float64), torch.randn(10, 1, 1, 4, dtype=torch.float64)
    out = RotaryPosEmbeddingHelperV1.apply(p, *tables(angles, "BLOCKWISE"), offset)
    torch.testing.assert_close(out, turned(p, angles[offset : offset + 4].expand(4, 2, 3, 4), "BLOCKWISE"))


@pytest.mark.parametrize(
    ("of_p", "of_tables", "result"),
    [
        (torch.bfloat16, torch.bfloat16, torch.bfloat16),
        (torch.float16, torch.bfloat16, torch.float16),
        (torch.bfloat16, torch.float32, torch.float32),
        (torch.float32, torch.bfloat16, torch.float32),
        (torch.float64, torch.float32, torch.float64),
    ],
)
def test_tables_in_float32_make_the_result_float32_as_on_a_gaudi(of_p, of_tables, result):
    p = torch.randn(2, 1, 3, 4, dtype=of_p, requires_grad=True)
    table = torch.randn(8, 4).to(of_tables)
    out = RotaryPosEmbeddingHelperV2.apply(p, table, table, torch.zeros(2, 3, dtype=torch.int64))
    assert out.dtype == result
    out.float().sum().backward()
    assert (p.grad.shape, p.grad.dtype) == (p.shape, p.dtype)


def test_pairwise_tables_are_broadcast_whatever_the_offset():
    torch.manual_seed(0)
    p, angles = torch.randn(2, 5, 3, 8, dtype=torch.float64), torch.randn(1, 5, 1, 4, dtype=torch.float64)
    out = apply_rotary_pos_emb(p, *tables(angles, "PAIRWISE"), None, 3, RotaryPosEmbeddingMode.PAIRWISE)
    torch.testing.assert_close(out, turned(p, angles.expand(2, 5, 3, 4), "PAIRWISE"))


@pytest.mark.parametrize("batches", [None, 1, 2])
def test_the_cache_of_chatglm_rotates_the_first_elements(batches):
    torch.manual_seed(0)
    p = torch.randn(5, 2, 3, 8, dtype=torch.float64, requires_grad=True)
    shape = (9, 2) if batches is None else (9, batches, 2)
    angles = torch.randn(shape, dtype=torch.float64)
    cache = torch.stack((angles.cos(), angles.sin()), -1)
    out = RotaryPosEmbeddingHelperV3.apply(p, cache)
    used = angles[:5].reshape(5, batches or 1, 1, 2).expand(5, 2, 3, 2)
    expected = torch.cat((turned(p[..., :4], used, "PAIRWISE"), p[..., 4:]), -1)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(apply_rotary_pos_emb(p, cache), expected)
    grads = [torch.autograd.grad(each.square().sum(), p)[0] for each in (out, expected)]
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda p: apply_rotary_pos_emb(p, torch.ones(9, 2), torch.ones(9, 2)), "size of the vectors, 4; they are"),
        (lambda p: apply_rotary_pos_emb(p, torch.ones(9, 4), torch.ones(8, 4)), "must have the same shape"),
        (
            lambda p: RotaryPosEmbeddingHelperV2.apply(p, *[torch.ones(2, 9, 4)] * 2, torch.zeros(2, 3).long()),
            r"must be \[positions, size\]",
        ),
        (
            lambda p: RotaryPosEmbeddingHelperV1.apply(p, *[torch.ones(4, 1, 1, 4)] * 2, 3),
            "2 tokens from offset 3 on need",
        ),
        (lambda p: RotaryPosEmbeddingHelperV3.apply(p, torch.ones(1, 2, 2)), "with at least 2 positions"),
        (lambda p: RotaryPosEmbeddingHelperV3.apply(p, torch.ones(9, 3, 2)), "n at most 2"),
        (lambda p: FusedRMSNorm.apply(p, torch.ones(3), 1e-6), r"gamma must have shape \[4\]"),
        (lambda p: CustomSoftmax.apply(p, 0), "needs a bfloat16 tensor, not torch.float32"),
        (lambda p: CustomSoftmax.apply(p.bfloat16(), 3), "flavor must be 0, 1 or 2, not 3"),
    ],
)
def test_misfitting_shapes_are_refused_with_a_message(call, said):
    with pytest.raises(ValueError, match=said):
        call(torch.ones(2, 1, 3, 4))


def test_all_ops_compile_into_one_graph():
    torch.manual_seed(0)
    p, gamma = torch.randn(4, 2, 3, 8), torch.rand(8)
    angles = torch.randn(9, 4)
    half, cache = tables(angles, "BLOCKWISE"), torch.stack((angles.cos(), angles.sin()), -1)[:, :2]

    def every(x):
        x = FusedRMSNorm.apply(x, gamma, 1e-6)
        x = RotaryPosEmbeddingHelperV1.apply(x, *(table[:, None, None] for table in half), 2)
        x = RotaryPosEmbeddingHelperV2.apply(x, *half, torch.tensor([[0, 8, 3]] * 4))
        x = RotaryPosEmbeddingHelperV3.apply(x, cache)
        return FusedSDPA.apply(x, x, x, None, 0.0, True) + CustomSoftmax.apply(x.bfloat16(), 0)

    compiled = torch.compile(every, backend="eager", fullgraph=True)
    found = []
    for function in (every, compiled):
        x = p.clone().requires_grad_()
        out = function(x)
        found.append((out, *torch.autograd.grad(out.square().sum(), x)))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("flavor", [0, 1, 2])
def test_custom_softmax(flavor):
    torch.manual_seed(0)
    x = torch.randn(3, 8).bfloat16().requires_grad_()
    out = CustomSoftmax.apply(x, flavor)
    expected = torch.softmax(x.detach().double(), -1)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.double(), expected, rtol=1e-2, atol=1e-3)
    out[:, 0].float().sum().backward()
    grad = expected * ((torch.arange(8) == 0).double() - expected[:, :1])
    torch.testing.assert_close(x.grad.double(), grad, rtol=5e-2, atol=2e-3)


def test_ctc_loss_adds_up_all_alignments():
    """Three frames and the labels "ab" have the alignments abb, aab, a-b, ab- and -ab, whose sum is computed by
    hand.
    """
    torch.manual_seed(0)
    log_probs = torch.randn(3, 1, 3, dtype=torch.float64).log_softmax(-1).requires_grad_()
    lengths = torch.tensor([3]), torch.tensor([2])
    loss = CTCLoss.apply(log_probs, torch.tensor([[1, 2]]), *lengths, 0, "sum")
    rows = [(1, 2, 2), (1, 1, 2), (1, 0, 2), (1, 2, 0), (0, 1, 2)]
    paths = [sum(log_probs[frame, 0, label] for frame, label in enumerate(row)) for row in rows]
    torch.testing.assert_close(loss, -torch.logsumexp(torch.stack(paths), 0))
    loss.backward()
    assert log_probs.grad.shape == log_probs.shape


@pytest.mark.parametrize("op", [FusedSDPA, FusedRMSNorm, RotaryPosEmbeddingHelperV1, CTCLoss, CustomSoftmax])
def test_a_subclass_that_overrides_an_unused_method_is_refused(op):
    class Named(op):
        """A subclass that overrides nothing."""

    assert Named.apply is op.apply
    for name in ("forward", "backward"):
        with pytest.raises(TypeError, match=f"Mine.{name} would never be called"):
            type("Mine", (op,), {name: staticmethod(lambda ctx: None)})
