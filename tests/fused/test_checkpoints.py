"""Fused optimizers load the state_dict of torch.optim's optimizers, and vice versa."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from training import MANY_SHAPES, assert_same, give_gradients, parameters

from perftool.fused import FusedAdagrad, FusedAdamW, FusedLamb, FusedSGD

KINDS = {
    "sgd": (
        lambda p: FusedSGD(p, 0.1, 0.9, 0.01),
        lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.01),
    ),
    "adagrad": (
        lambda p: FusedAdagrad(p, 0.1, 0.1),
        lambda p: torch.optim.Adagrad(p, 0.1, 0.1),
    ),
    "adamw": (
        lambda p: FusedAdamW(p, 0.1, eps=0.0, weight_decay=0.1),
        lambda p: torch.optim.AdamW(p, 0.1, eps=0.0, weight_decay=0.1),
    ),
}


def run(optimizer, params, steps):
    for step in steps:
        give_gradients(params, seed=step)
        optimizer.step()


def saved(optimizer):
    """Return the state of ``optimizer``, written to a checkpoint file and read back."""
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("route", ["fused to fused", "torch to fused", "fused to torch"])
def test_training_continues_from_a_checkpoint(kind, route):
    fused, plain = KINDS[kind]
    first, second = {
        "fused to fused": (fused, fused),
        "torch to fused": (plain, fused),
        "fused to torch": (fused, plain),
    }[route]
    straight, resumed = parameters(MANY_SHAPES), parameters(MANY_SHAPES)
    run(plain(straight), straight, range(6))
    before = first(resumed)
    run(before, resumed, range(3))
    checkpoint = saved(before)
    continued = copy.deepcopy(resumed)
    after = second(continued)
    after.load_state_dict(checkpoint)
    run(after, continued, range(3, 6))
    assert_same(continued, straight, rtol=1e-4, atol=1e-5)


def test_the_counter_of_a_group_is_the_step_of_every_parameter():
    params = parameters()
    fused = FusedAdamW([{"params": params[:2]}, {"params": params[2:]}])
    run(fused, params, range(3))
    for param in params[2:]:
        param.grad = None
    fused.step()
    assert [group["step"] for group in fused.param_groups] == [4, 3]
    steps = [entry["step"].item() for entry in fused.state_dict()["state"].values()]
    assert steps == [4.0, 4.0, 3.0, 3.0, 3.0]
    assert all("step" not in state for state in fused.state.values())


def test_loading_into_an_optimizer_that_has_stepped():
    ours, theirs = parameters(MANY_SHAPES), parameters(MANY_SHAPES)
    fused, other = FusedSGD(ours, 0.1, 0.9), FusedSGD(theirs, 0.1, 0.9)
    run(fused, ours, range(2))
    run(other, theirs, range(2))
    early = copy.deepcopy(fused.state_dict())
    run(fused, ours, range(2, 4))
    run(other, theirs, range(2, 4))
    fused.load_state_dict(early)
    other.load_state_dict(copy.deepcopy(early))
    run(fused, ours, range(4, 6))
    run(other, theirs, range(4, 6))
    assert_same(ours, theirs)


def test_a_group_that_says_correct_bias_is_understood():
    params = parameters()
    state = FusedAdamW(params).state_dict()
    del state["param_groups"][0]["bias_correction"]
    state["param_groups"][0]["correct_bias"] = False
    fused = FusedAdamW(params)
    with pytest.warns(UserWarning, match="correct_bias"):
        fused.load_state_dict(state)
    assert fused.param_groups[0]["bias_correction"] is False


@pytest.mark.parametrize("option", ["amsgrad", "maximize"])
def test_options_that_would_change_the_arithmetic_are_refused(option):
    params = parameters()
    state = torch.optim.AdamW(params, **{option: True}).state_dict()
    with pytest.raises(ValueError, match=f"FusedAdamW cannot continue from a state with {option}=True"):
        FusedAdamW(params).load_state_dict(state)


def test_lamb_round_trip():
    straight, resumed = parameters(), parameters()
    run(FusedLamb(straight, 0.1), straight, range(4))
    before = FusedLamb(resumed, 0.1)
    run(before, resumed, range(2))
    after = FusedLamb(resumed, 0.1)
    after.load_state_dict(saved(before))
    run(after, resumed, range(2, 4))
    assert_same(resumed, straight)
