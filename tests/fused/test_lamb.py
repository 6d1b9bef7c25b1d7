"""Compares FusedLamb with its definition in double precision and with timm's Lamb."""

from __future__ import annotations

import importlib.util
import math
import pickle

import pytest
import torch
from definitions import lamb_step
from hypothesis import given, settings
from hypothesis import strategies as st
from training import MANY_SHAPES, ODD_SHAPES, assert_same, give_gradients, parameters

from perftool.fused import FusedLamb, dispatch

OPTIONS = [
    {},
    {"weight_decay": 0.0},
    {"weight_decay": 0.0, "use_lamb": True},
    {"max_grad_norm": None},
    {"max_grad_norm": 1e6},
    {"grad_averaging": False},
    {"bias_correction": False},
    {"betas": (0.0, 0.5)},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("backend", ["", "reference"])
def test_the_definition(monkeypatch, options, backend):
    monkeypatch.setattr(dispatch, "wanted", backend)
    ours = parameters()
    weights = [param.detach().double() for param in ours]
    moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in weights]
    fused = FusedLamb(ours, 1e-2, **options)
    for step in range(1, 6):
        grads = give_gradients(ours, seed=step)
        assert fused.step() is None
        lamb_step(weights, [grad.double() for grad in grads], moments, step, **options)
    assert_same(ours, weights, rtol=1e-4, atol=1e-5)


@settings(max_examples=20)
@given(
    shapes=st.lists(st.lists(st.integers(1, 9), max_size=3).map(tuple), min_size=1, max_size=40),
)
def test_any_shapes_follow_the_definition(shapes):
    ours, theirs = parameters(shapes), [param.detach() for param in parameters(shapes)]
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in theirs]
    fused = FusedLamb(ours, 1e-2)
    for step in range(1, 4):
        grads = give_gradients(ours, seed=step)
        fused.step()
        lamb_step(theirs, grads, moments, step)
    assert_same(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype):
    ours = parameters(dtype=dtype)
    weights = [param.detach().double() for param in ours]
    moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in weights]
    fused = FusedLamb(ours, 1e-2, dtype=torch.float32)
    for step in range(1, 4):
        grads = give_gradients(ours, seed=step)
        fused.step()
        lamb_step(weights, [grad.double() for grad in grads], moments, step)
    tolerance = 1e-6 if dtype == torch.float64 else 2e-2
    assert_same(ours, weights, rtol=tolerance, atol=tolerance)


def test_the_norm_is_that_of_all_groups():
    ours, theirs = parameters(), parameters()
    one = FusedLamb([{"params": ours[:2]}, {"params": ours[2:]}], 1e-2)
    other = FusedLamb(theirs, 1e-2)
    give_gradients(ours, theirs, seed=0, scale=10.0)
    one.step()
    other.step()
    assert_same(ours, theirs)


def test_zero_weights_stay_zero_and_zero_updates_do_nothing():
    params = [torch.nn.Parameter(torch.zeros(4)), torch.nn.Parameter(torch.ones(4))]
    params[0].grad, params[1].grad = torch.ones(4), torch.zeros(4)
    FusedLamb(params, 0.1, weight_decay=0.0, use_lamb=True).step()
    assert params[0].tolist() == [0.0] * 4
    assert params[1].tolist() == [1.0] * 4


def test_a_nan_does_not_stay_in_the_state():
    ours, theirs = parameters(), parameters()
    fused = FusedLamb(ours, 1e-2)
    give_gradients(ours, seed=0)
    ours[0].grad[0] = math.nan
    fused.step()
    with torch.no_grad():
        for param, value in zip(ours, theirs, strict=True):
            param.copy_(value)
    for state in fused.state.values():
        for moment in state.values():
            moment.zero_()
    fresh = FusedLamb(theirs, 1e-2)
    fused.param_groups[0]["step"] = 0
    give_gradients(ours, theirs, seed=1)
    fused.step()
    fresh.step()
    assert_same(ours, theirs)


@pytest.mark.parametrize("shapes", [ODD_SHAPES, MANY_SHAPES])
def test_zero_grad_follows_set_grad_none(shapes):
    params = parameters(shapes)
    give_gradients(params, seed=0)
    FusedLamb(params, set_grad_none=False).zero_grad()
    assert all(param.grad is not None and not param.grad.any() for param in params)
    FusedLamb(params).zero_grad()
    assert all(param.grad is None for param in params)


def test_the_default_decay_is_that_of_the_code():
    assert FusedLamb(parameters()).defaults["weight_decay"] == 0.01


def test_pickling_keeps_what_is_not_in_the_groups():
    fused = pickle.loads(pickle.dumps(FusedLamb(parameters(), set_grad_none=False, dtype=torch.float64)))
    assert (fused.set_grad_none, fused.dtype) == (False, torch.float64)
    assert set(fused._native_options()) >= {"set_grad_none", "dtype", "max_grad_norm", "use_lamb"}
    assert "differentiable" not in fused._native_options()


def test_unsupported_options_raise():
    with pytest.raises(RuntimeError, match="FusedLamb does not support the AMSGrad variant"):
        FusedLamb(parameters(), amsgrad=True)
    params = parameters()
    give_gradients(params, seed=0)
    params[0].grad = params[0].grad.to_sparse()
    with pytest.raises(RuntimeError, match="Lamb does not support sparse gradients"):
        FusedLamb(params).step()


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_lamb_agrees_with_timm(decay):
    from timm.optim import Lamb

    ours, theirs = parameters(), parameters()
    fused = FusedLamb(ours, 1e-2, weight_decay=decay)
    plain = Lamb(theirs, 1e-2, weight_decay=decay, max_grad_norm=1.0)
    for step in range(5):
        give_gradients(ours, theirs, seed=step)
        fused.step()
        plain.step()
    assert_same(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shapes", [ODD_SHAPES, ((300, 300),)])
def test_one_warning_says_that_zeros_are_not_trained(shapes, recwarn):
    params = parameters(shapes)
    with torch.no_grad():
        params[-1].zero_()
    fused = FusedLamb(params)
    for step in range(2):
        give_gradients(params, seed=step)
        fused.step()
    assert not params[-1].any()
    assert ["never trains" in str(each.message) for each in recwarn] == [True]
    empty = torch.nn.Parameter(torch.empty(0))
    empty.grad = torch.empty(0)
    FusedLamb([*params[:-1], empty]).step()
    quiet = FusedLamb(params, weight_decay=0.0)
    quiet.step()
    assert len(recwarn) == 1
    assert params[-1].any()
