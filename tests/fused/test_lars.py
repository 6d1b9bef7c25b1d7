"""Compares FusedLars and FusedResourceApplyMomentum with loops in double precision and with timm's Lars."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import warnings

import pytest
import torch
from definitions import lars_gradient, momentum_step
from training import MANY_SHAPES, assert_same, give_gradients, parameters

from perftool.fused import FusedLars, FusedResourceApplyMomentum, FusedSGD

DECAY, LR, EETA, EPS, MOMENTUM = 0.01, 0.1, 0.02, 1e-8, 0.9


def adapted(weight, grad, adapt, decay=DECAY):
    """Return the gradient scaled with the options of these tests."""
    return lars_gradient(weight, grad, adapt, lr=LR, decay=decay, eeta=EETA, eps=EPS)


def give_persistent_gradients(params, seed):
    """Give the gradients new values. After the first call, the gradient tensors themselves stay the same."""
    if params[0].grad is None:
        return [grad.double() for grad in give_gradients(params, seed=seed)]
    others = parameters([param.shape for param in params])
    values = give_gradients(others, seed=seed)
    for param, value in zip(params, values, strict=True):
        param.grad.copy_(value)
    return [value.double() for value in values]


@pytest.mark.parametrize("persistent", [True, False])
def test_with_momentum_that_adds_unscaled_gradients(persistent):
    params = parameters(MANY_SHAPES)
    mask = [int(param.dim() > 1) for param in params]
    weights = [param.detach().double() for param in params]
    buffers = [torch.zeros_like(weight) for weight in weights]
    base = FusedResourceApplyMomentum(params, LR, MOMENTUM, DECAY)
    lars = FusedLars(base, mask, EETA, EPS)
    for step in range(6):
        if not persistent:
            lars.zero_grad()
        grads = give_persistent_gradients(params, step)
        lars.step()
        for w, g, b, adapt in zip(weights, grads, buffers, mask, strict=True):
            momentum_step(w, b, adapted(w, g, adapt), MOMENTUM, first=step == 0)
    assert base.param_groups[0]["weight_decay"] == DECAY
    assert_same(params, weights)
    assert_same([base.state[param]["momentum_buffer"] for param in params], buffers)


@pytest.mark.parametrize("base", [torch.optim.SGD, FusedSGD])
@pytest.mark.parametrize("persistent", [True, False])
def test_around_sgd_whose_rate_applies_a_second_time(base, persistent):
    params = parameters(MANY_SHAPES)
    mask = torch.tensor([1, 0] * (len(params) // 2))
    weights = [param.detach().double() for param in params]
    lars = FusedLars(base(params, LR, weight_decay=DECAY), mask, EETA, EPS)
    for step in range(5):
        if not persistent:
            lars.zero_grad()
        grads = give_persistent_gradients(params, step)
        lars.step()
        scaled = [adapted(w, g, a) for w, g, a in zip(weights, grads, mask, strict=True)]
        assert_same([param.grad for param in params], scaled)
        for w, g in zip(weights, scaled, strict=True):
            w -= LR * g
    assert_same(params, weights)


def test_the_mask_restarts_in_every_group():
    params = parameters([(4,), (4,), (4,), (4,)])
    base = torch.optim.SGD([{"params": params[:2]}, {"params": params[2:]}], LR)
    lars = FusedLars(base, [1, 0], EETA, EPS)
    grads = give_gradients(params, seed=0)
    weights = [param.detach().clone() for param in params]
    lars.step()
    expected = [adapted(w, g, a, decay=0.0) for w, g, a in zip(weights, grads, (1, 0, 1, 0), strict=True)]
    assert_same([param.grad for param in params], expected)


def test_norms_of_zero_leave_a_ratio_of_one():
    params = [torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.ones(3))]
    params[0].grad, params[1].grad = torch.ones(3), torch.zeros(3)
    FusedLars(torch.optim.SGD(params, LR, weight_decay=DECAY), [1, 1], EETA).step()
    assert_same([params[0].grad, params[1].grad], [torch.full((3,), LR), torch.full((3,), LR * DECAY)])


def test_gradients_that_are_missing_are_skipped():
    params = parameters([(4,), (5,), (6,)])
    grads = give_gradients(params, seed=0)
    params[1].grad = None
    before = params[1].detach().clone()
    weights = [param.detach().clone() for param in params]
    FusedLars(torch.optim.SGD(params, LR), [0, 0, 1], EETA, EPS).step()
    assert_same([params[1]], [before])
    assert_same([params[2].grad], [adapted(weights[2], grads[2], 1, decay=0.0)])


def test_a_mask_that_is_too_short_is_refused():
    params = parameters()
    give_gradients(params, seed=0)
    lars = FusedLars(torch.optim.SGD(params, LR, weight_decay=DECAY), [1, 0])
    with pytest.raises(RuntimeError, match="the same number of elements but they respectively have: 5, 5 and 2"):
        lars.step()
    assert lars.param_groups[0]["weight_decay"] == DECAY


def test_lars_shares_groups_and_state_with_the_wrapped_optimizer():
    params = parameters()
    base = torch.optim.SGD(params, LR, MOMENTUM)
    lars = FusedLars(base, [1] * 6, EETA)
    assert isinstance(lars, torch.optim.Optimizer)
    schedule = torch.optim.lr_scheduler.ExponentialLR(lars, 0.5)
    give_gradients(params, seed=0)
    lars.step()
    schedule.step()
    lars.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]})
    assert base.param_groups[0]["lr"] == LR / 2
    assert len(base.param_groups) == 2
    assert lars.state is base.state
    assert lars.defaults == {**base.defaults, "skip_mask": [1] * 6, "eeta": EETA, "eps": EPS}
    state = copy.deepcopy(lars.state_dict())
    base.load_state_dict(state)
    assert lars.param_groups is base.param_groups
    lars.load_state_dict(state)
    assert lars.state_dict()["param_groups"] == state["param_groups"]
    copied = pickle.loads(pickle.dumps(lars))
    assert copied.skip_mask == [1] * 6
    assert copied.optim.param_groups[0]["lr"] == LR / 2
    seen = []
    lars.register_step_post_hook(lambda *args: seen.append("stepped"))
    lars.step()
    assert seen == ["stepped"]


def test_without_momentum_every_step_adds_the_gradients_and_a_warning_says_so_once():
    params = parameters(MANY_SHAPES)
    weights = [param.detach().clone() for param in params]
    base = FusedResourceApplyMomentum(params, LR)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step in range(3):
            grads = give_gradients(params, seed=step)
            base.step()
            for weight, grad in zip(weights, grads, strict=True):
                weight += grad
    assert [str(each.message) for each in said if "adds the gradients in every step" in str(each.message)]
    assert len(said) == 1
    assert_same(params, weights)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((-1.0,), "Invalid learning rate: -1"),
        ((LR, -1.0), "Invalid momentum value: -1"),
        ((LR, 0.0, -1.0), "Invalid weight_decay value: -1"),
        ((LR, 0.0, 0.0, True), "Nesterov momentum requires a momentum"),
    ],
)
def test_the_errors_of_resource_apply_momentum(arguments, said):
    with pytest.raises(ValueError, match=said):
        FusedResourceApplyMomentum(parameters(), *arguments)


@pytest.mark.parametrize(
    ("base", "warned"),
    [
        (lambda params: FusedSGD(params, LR), 1),
        (lambda params: torch.optim.SGD(params, LR), 1),
        (lambda params: torch.optim.SGD(params, 1.0), 0),
        (lambda params: FusedResourceApplyMomentum(params, LR, MOMENTUM), 0),
    ],
)
def test_a_rate_that_applies_twice_gives_one_warning(base, warned):
    params = parameters()
    lars = FusedLars(base(params), [1] * 5)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step in range(2):
            give_gradients(params, seed=step)
            lars.step()
    assert len([each for each in said if "multiplies by it again" in str(each.message)]) == warned


def test_a_state_of_gaudis_resource_momentum_continues_after_its_first_step():
    """The state contains no step count, but its momentum shows that the first step has been taken."""
    params = parameters()
    base = FusedResourceApplyMomentum(params, LR, MOMENTUM)
    for step in range(2):
        give_gradients(params, seed=step)
        base.step()
    state = copy.deepcopy(base.state_dict())
    for each in (*state["state"].values(), *state["param_groups"]):
        del each["step"]
    others = copy.deepcopy(params)
    loaded = FusedResourceApplyMomentum(others, LR, MOMENTUM)
    loaded.load_state_dict(state)
    give_gradients(params, others, seed=2)
    base.step()
    loaded.step()
    assert_same(params, others)


def test_an_optimizer_without_weight_decay_can_be_wrapped_for_many_steps():
    params, plain = parameters(), parameters()
    lars = FusedLars(torch.optim.Rprop(params, LR), [0] * 5)
    rprop = torch.optim.Rprop(plain, LR)
    for step in range(3):
        give_gradients(params, plain, seed=step)
        lars.step()
        rprop.step()
    assert_same(params, plain)


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
def test_lars_agrees_with_timm():
    from timm.optim import Lars

    ours, theirs = parameters(), parameters()
    lars = FusedLars(torch.optim.SGD(ours, 1.0, weight_decay=DECAY), [1] * 5, EETA, EPS)
    plain = Lars(theirs, 1.0, weight_decay=DECAY, trust_coeff=EETA, eps=EPS, always_adapt=True)
    for step in range(4):
        give_gradients(ours, theirs, seed=step)
        lars.step()
        plain.step()
    assert_same(ours, theirs)


def test_the_wrapped_optimizer_is_restored_after_a_failed_step():
    params, plain = parameters(), parameters()
    give_gradients(params, plain, seed=0)
    base = FusedSGD(params, LR, weight_decay=DECAY)
    with pytest.raises(RuntimeError, match="the same number of elements"):
        FusedLars(base, [1]).step()
    base.step()
    FusedSGD(plain, LR, weight_decay=DECAY).step()
    assert_same(params, plain)


def test_zero_grad_fills_with_zeros_as_on_a_gaudi():
    params = parameters()
    give_gradients(params, seed=0)
    lars = FusedLars(FusedSGD(params, LR), [1] * 5)
    lars.zero_grad()
    assert all(param.grad is not None and not param.grad.any() for param in params)
    lars.zero_grad(set_to_none=True)
    assert all(param.grad is None for param in params)
