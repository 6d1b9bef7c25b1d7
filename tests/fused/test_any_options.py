"""Compares every optimizer under random options with a plain loop in double precision, and runs each under
torch.compile.
"""

from __future__ import annotations

import copy

import pytest
import torch
from definitions import lamb_step, lars_gradient, momentum_step
from hypothesis import given, settings
from hypothesis import strategies as st
from training import assert_same, give_gradients, parameters

from perftool.fused import (
    FusedAdagrad,
    FusedAdamW,
    FusedClipNorm,
    FusedEMA,
    FusedLamb,
    FusedLars,
    FusedResourceApplyMomentum,
    FusedSGD,
)
from perftool.fused.optimizers.adagrad import adagrad_
from perftool.fused.optimizers.adamw import adamw_
from perftool.fused.optimizers.sgd import sgd_

RATE, DECAY = st.floats(1e-4, 0.5), st.sampled_from([0.0, 0.01, 0.3])
BETA, EPS = st.floats(0.0, 0.99), st.floats(1e-8, 1e-2)
SHAPES = st.lists(st.lists(st.integers(0, 7), max_size=3).map(tuple), min_size=1, max_size=12)
STEPS = 3


def compared(make, shapes, states, plain, layout, dtype):
    """Take three steps with an optimizer, and with a plain loop on the same values in double precision."""
    ours = parameters(shapes, dtype)
    if layout == "turned":
        for param in ours:
            order = tuple(reversed(range(param.dim())))
            param.data = param.data.permute(order).contiguous().permute(order)
    weights = [param.detach().double() for param in ours]
    lists = [[torch.zeros_like(weight) for weight in weights] for _ in range(states)]
    optimizer = make(ours)
    for step in range(1, STEPS + 1):
        grads = [grad.double() for grad in give_gradients(ours, seed=step)]
        optimizer.step()
        plain(weights, grads, *lists, step)
    tolerance = 1e-9 if dtype == torch.float64 else 2e-3
    assert_same(ours, weights, rtol=tolerance, atol=tolerance)


ANY = {
    "shapes": SHAPES,
    "layout": st.sampled_from(["as made", "turned"]),
    "dtype": st.sampled_from([torch.float32, torch.float64]),
}


@settings(max_examples=15)
@given(lr=RATE, decay=DECAY, momentum=st.sampled_from([0.0, 0.5, 0.9]), nesterov=st.booleans(),
       dampening=st.sampled_from([0.0, 0.25]), **ANY)  # fmt: skip
def test_sgd(lr, decay, momentum, nesterov, dampening, shapes, layout, dtype):
    nesterov = nesterov and momentum > 0 and dampening == 0
    options = {"lr": lr, "momentum": momentum, "weight_decay": decay, "dampening": dampening, "nesterov": nesterov}
    compared(
        lambda params: FusedSGD(params, **options), shapes, 1,
        lambda weights, grads, buffers, step: sgd_(weights, grads, buffers, **options), layout, dtype,
    )  # fmt: skip


@settings(max_examples=15)
@given(lr=RATE, decay=DECAY, lr_decay=DECAY, eps=EPS, **ANY)
def test_adagrad(lr, decay, lr_decay, eps, shapes, layout, dtype):
    options = {"lr": lr, "weight_decay": decay, "lr_decay": lr_decay, "eps": eps}
    compared(
        lambda params: FusedAdagrad(params, **options), shapes, 1,
        lambda weights, grads, sums, step: adagrad_(weights, grads, sums, step=step, **options),
        layout, dtype,
    )  # fmt: skip


@settings(max_examples=15)
@given(lr=RATE, decay=DECAY, beta1=BETA, beta2=BETA, eps=EPS, correct=st.booleans(), **ANY)
def test_adamw(lr, decay, beta1, beta2, eps, correct, shapes, layout, dtype):
    options = {"lr": lr, "weight_decay": decay, "eps": eps, "bias_correction": correct}
    compared(
        lambda params: FusedAdamW(params, betas=(beta1, beta2), **options), shapes, 2,
        lambda weights, grads, m, v, step: adamw_(
            weights, grads, m, v, step=step, beta1=beta1, beta2=beta2, **options
        ), layout, dtype,
    )  # fmt: skip


@settings(max_examples=15)
@given(lr=st.floats(1e-4, 0.05), decay=DECAY, beta1=BETA, beta2=BETA, eps=st.floats(1e-6, 1e-2), correct=st.booleans(),
       averaging=st.booleans(), use_lamb=st.booleans(), limit=st.sampled_from([None, 0.1, 1e3]), **ANY)  # fmt: skip
def test_lamb(lr, decay, beta1, beta2, eps, correct, averaging, use_lamb, limit, shapes, layout, dtype):
    options = {"lr": lr, "weight_decay": decay, "eps": eps, "bias_correction": correct, "use_lamb": use_lamb}
    options.update(max_grad_norm=limit, grad_averaging=averaging)
    compared(
        lambda params: FusedLamb(params, betas=(beta1, beta2), **options), shapes, 2,
        lambda weights, grads, m, v, step: lamb_step(
            weights, grads, list(zip(m, v, strict=True)), step, betas=(beta1, beta2), **options
        ), layout, dtype,
    )  # fmt: skip


@settings(max_examples=15)
@given(lr=RATE, decay=DECAY, eeta=st.floats(1e-3, 0.5), momentum=st.sampled_from([0.5, 0.9]), **ANY)
def test_lars(lr, decay, eeta, momentum, shapes, layout, dtype):
    mask = [index % 2 for index in range(len(shapes))]

    def plain(weights, grads, buffers, step):
        for weight, grad, buffer, adapt in zip(weights, grads, buffers, mask, strict=True):
            scaled = lars_gradient(weight, grad, adapt, lr=lr, decay=decay, eeta=eeta)
            momentum_step(weight, buffer, scaled, momentum, first=step == 1)

    compared(
        lambda params: FusedLars(FusedResourceApplyMomentum(params, lr, momentum, decay), mask, eeta), shapes, 1,
        plain, layout, dtype,
    )  # fmt: skip


MAKERS = {
    "sgd": lambda params: FusedSGD(params, 0.05, 0.9, 0.01),
    "adagrad": FusedAdagrad,
    "adamw": FusedAdamW,
    "adamw bf16": lambda params: FusedAdamW(params, moments_dtype=torch.bfloat16),
    "lamb": lambda params: FusedLamb(params, weight_decay=0.01),
    "lars": lambda params: FusedLars(FusedResourceApplyMomentum(params, 0.05, 0.9), [1] * len(params)),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "adamw" else pytest.mark.slow) for name in MAKERS]
)
def test_a_step_under_torch_compile_is_the_step(name):
    plain = parameters()
    compiled = copy.deepcopy(plain)
    one, other = MAKERS[name](plain), MAKERS[name](compiled)
    step = torch.compile(lambda: other.step(), backend="eager")
    for seed in range(3):
        give_gradients(plain, compiled, seed=seed)
        one.step()
        step()
    assert_same(compiled, plain)


@pytest.mark.parametrize("what", ["clip", "average"])
def test_clipping_and_averaging_under_torch_compile(what):
    models = [torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)]
    models[1].load_state_dict(models[0].state_dict())
    give_gradients(*(list(model.parameters()) for model in models), seed=0)
    found = []
    for model, wrap in zip(models, (lambda call: call, lambda call: torch.compile(call, backend="eager")), strict=True):
        params = list(model.parameters())
        if what == "clip":
            clip = FusedClipNorm(params, 0.1)
            wrap(lambda clip=clip, params=params: clip.clip_norm(params))()
            found.append([param.grad for param in params])
        else:
            average = FusedEMA(model, 0.5, 5000)
            with torch.no_grad():
                params[0].add_(1.0)
            wrap(lambda average=average, model=model: average.update(model))()
            found.append(list(average.ema.parameters()))
    assert_same(*found)
