"""Compares FusedClipNorm with torch.nn.utils.clip_grad_norm_."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from training import assert_same, give_gradients, parameters

from perftool.fused import FusedClipNorm


@settings(max_examples=12)
@given(
    shapes=st.lists(st.lists(st.integers(0, 9), max_size=3).map(tuple), min_size=1, max_size=20),
    limit=st.floats(1e-3, 1e3),
)
def test_it_clips_as_torch_does(shapes, limit):
    ours, theirs = parameters(shapes), parameters(shapes)
    give_gradients(ours, theirs, seed=0)
    norm = FusedClipNorm(ours, limit).clip_norm(ours)
    expected = torch.nn.utils.clip_grad_norm_(theirs, limit)
    assert norm.shape == (1,)
    assert_same([norm], [expected.reshape(1)])
    assert_same([p.grad for p in ours], [p.grad for p in theirs])


@pytest.mark.parametrize("dtypes", [(torch.bfloat16,), (torch.float32, torch.float64, torch.bfloat16)])
def test_mixed_dtypes(dtypes):
    ours = [p for dtype in dtypes for p in parameters(dtype=dtype)]
    grads = [grad.double() for grad in give_gradients(ours, seed=0)]
    norm = FusedClipNorm(ours, 1.0).clip_norm(ours)
    total = math.sqrt(sum(float((grad**2).sum()) for grad in grads))
    assert norm.item() == pytest.approx(total, rel=1e-2)
    assert_same([p.grad for p in ours], [grad / total for grad in grads], rtol=2e-2, atol=1e-3)


def test_one_tensor_and_a_generator_are_accepted():
    params = parameters()
    give_gradients(params, seed=0)
    clip = FusedClipNorm((param for param in params), 0.1)
    clip.clip_norm(params[1])
    assert params[1].grad.norm().item() == pytest.approx(0.1, rel=1e-3)
    clip.clip_norm(param for param in params)
    assert torch.cat([p.grad.flatten() for p in params]).norm().item() == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_the_norm_of_millions_of_elements_is_exact(memory_format):
    ours = [nn.Parameter(torch.zeros(shape)) for shape in ((2500, 1000, 2, 5), (7, 100, 300, 25), (5,))]
    for param in ours:
        values = torch.rand(param.shape, generator=torch.Generator().manual_seed(0))
        param.grad = values.to(memory_format=memory_format) if values.dim() == 4 else values
    expected = torch.cat([param.grad.flatten() for param in ours]).double().norm().item()
    assert FusedClipNorm(ours, 1e9).clip_norm(ours).item() == pytest.approx(expected, rel=1e-4)


def test_without_gradients_the_norm_is_zero():
    assert FusedClipNorm([], 1.0).clip_norm(parameters()).tolist() == 0.0


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_and_infinity_clip_as_in_torch(value):
    ours, theirs = parameters(), parameters()
    give_gradients(ours, theirs, seed=0)
    ours[0].grad[0] = theirs[0].grad[0] = value
    FusedClipNorm(ours, 1.0).clip_norm(ours)
    torch.nn.utils.clip_grad_norm_(theirs, 1.0)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad, equal_nan=True)


def test_norms_other_than_2_are_refused():
    params = parameters()
    give_gradients(params, seed=0)
    clip = FusedClipNorm(params, 1.0)
    clip.norm_type = float("inf")
    with pytest.raises(ValueError, match="computes the 2-norm only, not norm_type=inf"):
        clip.clip_norm(params)
