"""FusedClipNorm against torch.nn.utils.clip_grad_norm_, also folded into the next step."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from training import MANY_SHAPES, ODD_SHAPES, assert_same, give_gradients, parameters

from perftool.fused import FusedAdagrad, FusedAdamW, FusedClipNorm, FusedLamb, FusedSGD, reference


@settings(deadline=None, max_examples=25)
@given(
    shapes=st.lists(st.lists(st.integers(0, 9), max_size=3).map(tuple), min_size=1, max_size=20),
    limit=st.floats(1e-3, 1e3),
    backend=st.sampled_from([None, "fast", "reference"]),
)
def test_the_clipping_of_torch(shapes, limit, backend):
    ours, theirs = parameters(shapes), parameters(shapes)
    give_gradients(ours, theirs, seed=0)
    norm = FusedClipNorm(ours, limit, backend=backend).clip_norm(ours)
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
    assert reference.total_norm([p.grad for p in params]).item() == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_the_norm_of_millions_of_elements_is_exact(memory_format):
    ours = [nn.Parameter(torch.zeros(shape)) for shape in ((1000, 1500, 1, 1), (7, 100, 300, 10), (5,))]
    for param in ours:
        values = torch.rand(param.shape, generator=torch.Generator().manual_seed(0))
        param.grad = values.to(memory_format=memory_format) if values.dim() == 4 else values
    expected = torch.cat([param.grad.flatten() for param in ours]).double().norm().item()
    assert FusedClipNorm(ours, 1e9).clip_norm(ours).item() == pytest.approx(expected, rel=1e-6)


def test_without_gradients_the_norm_is_zero():
    assert FusedClipNorm([], 1.0).clip_norm(parameters()).tolist() == 0.0


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_and_infinity_are_those_of_torch(value):
    ours, theirs = parameters(), parameters()
    give_gradients(ours, theirs, seed=0)
    ours[0].grad[0] = theirs[0].grad[0] = value
    FusedClipNorm(ours, 1.0).clip_norm(ours)
    torch.nn.utils.clip_grad_norm_(theirs, 1.0)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad, equal_nan=True)


OPTIMIZERS = [
    lambda params, **kw: FusedSGD(params, 0.1, 0.9, **kw),
    FusedAdagrad,
    FusedAdamW,
    lambda params, **kw: FusedAdamW(params, moments_dtype=torch.bfloat16, **kw),
]


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("limit", [0.5, 1e6])
@pytest.mark.parametrize("backend", [None, "fallback", "reference"])
def test_clipping_folded_into_the_step(make, limit, backend):
    ours, theirs = parameters(MANY_SHAPES), parameters(MANY_SHAPES)
    folded, plain = make(ours, backend=backend), make(theirs)
    clip = FusedClipNorm(ours, limit, optimizer=folded)
    for step in range(4):
        grads = give_gradients(ours, theirs, seed=step)
        norm = clip.clip_norm(ours)
        assert_same([p.grad for p in ours], grads)
        folded.step()
        assert_same([norm], [FusedClipNorm(theirs, limit).clip_norm(theirs)])
        plain.step()
    assert_same(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_divisor_is_used_once():
    params = parameters(ODD_SHAPES)
    fused = FusedSGD(params, 1.0)
    give_gradients(params, seed=0)
    FusedClipNorm(params, 1e-3, optimizer=fused).clip_norm(params)
    fused.step()
    before = [param.detach().clone() for param in params]
    grads = give_gradients(params, seed=1)
    fused.step()
    assert_same(params, [value - grad for value, grad in zip(before, grads, strict=True)])


def test_an_optimizer_that_cannot_fold_is_refused():
    params = parameters()
    with pytest.raises(TypeError, match="FusedLamb cannot scale gradients in its step"):
        FusedClipNorm(params, 1.0, optimizer=FusedLamb(params))


def test_clipping_a_part_scales_that_part_alone():
    ours, theirs = parameters(MANY_SHAPES), parameters(MANY_SHAPES)
    fused, plain = FusedSGD(ours, 0.1), torch.optim.SGD(theirs, 0.1)
    give_gradients(ours, theirs, seed=0)
    parts = (slice(0, 5), slice(5, 20))
    for limit, part in zip((0.1, 0.2), parts, strict=True):
        norm = FusedClipNorm(ours, limit, optimizer=fused).clip_norm(ours[part])
        assert_same([norm], [torch.nn.utils.clip_grad_norm_(theirs[part], limit).reshape(1)])
    fused.step()
    plain.step()
    assert_same(ours, theirs)


def test_a_clip_after_a_clip_sees_what_the_first_one_did():
    ours, theirs = parameters(MANY_SHAPES), parameters(MANY_SHAPES)
    fused, plain = FusedSGD(ours, 0.1), torch.optim.SGD(theirs, 0.1)
    give_gradients(ours, theirs, seed=0)
    for limit in (0.5, 0.1):
        norm = FusedClipNorm(ours, limit, optimizer=fused).clip_norm(ours)
        assert_same([norm], [torch.nn.utils.clip_grad_norm_(theirs, limit).reshape(1)])
    fused.step()
    plain.step()
    assert_same(ours, theirs)


def _zero(fused, params):
    fused.zero_grad()


def _zero_the_model(fused, params):
    for param in params:
        param.grad = None


def _zero_in_place(fused, params):
    for param in params:
        param.grad.zero_()


@pytest.mark.parametrize("forget", [_zero, _zero_the_model, _zero_in_place])
def test_a_clip_without_a_step_leaves_nothing_behind(forget):
    ours, theirs = parameters(MANY_SHAPES), parameters(MANY_SHAPES)
    fused = FusedSGD(ours, 1.0)
    give_gradients(ours, seed=0)
    FusedClipNorm(ours, 1e-3, optimizer=fused).clip_norm(ours)
    forget(fused, ours)
    grads = give_gradients(theirs, seed=1)
    for param, grad in zip(ours, grads, strict=True):
        if param.grad is None:
            param.grad = grad.clone()
        else:
            param.grad.add_(grad)
    fused.step()
    assert_same(ours, [param - grad for param, grad in zip(theirs, grads, strict=True)])


def test_parameters_without_a_gradient_do_not_prevent_folding():
    ours, theirs = parameters(MANY_SHAPES), parameters(MANY_SHAPES)
    fused, plain = FusedSGD(ours, 0.1), torch.optim.SGD(theirs, 0.1)
    grads = give_gradients(ours, theirs, seed=0)
    ours[3].grad = theirs[3].grad = None
    FusedClipNorm(ours, 0.5, optimizer=fused).clip_norm(ours)
    assert_same([ours[0].grad], [grads[0]])
    torch.nn.utils.clip_grad_norm_(theirs, 0.5)
    fused.step()
    plain.step()
    assert_same(ours, theirs)


def test_another_norm_is_refused():
    params = parameters()
    give_gradients(params, seed=0)
    clip = FusedClipNorm(params, 1.0)
    clip.norm_type = float("inf")
    with pytest.raises(ValueError, match="knows the 2-norm alone, not norm_type=inf"):
        clip.clip_norm(params)
