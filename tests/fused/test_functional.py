"""The functional FusedAdamW, on its own and inside torch.distributed.optim."""

from __future__ import annotations

import pytest
import torch
from training import assert_same, give_gradients, parameters

from perftool.fused import FusedAdamW, distributed


@pytest.mark.parametrize("moments_dtype", [None, torch.bfloat16, torch.float8_e5m2])
def test_the_functional_form_steps_like_the_optimizer(moments_dtype):
    ours, theirs = parameters(), parameters()
    functional = distributed.FusedAdamW(ours, 1e-2, weight_decay=0.1, moments_dtype=moments_dtype)
    plain = FusedAdamW(theirs, 1e-2, weight_decay=0.1, moments_dtype=moments_dtype)
    for step in range(4):
        grads = give_gradients(theirs, seed=step)
        functional.step(grads)
        plain.step()
    assert_same(ours, theirs)
    assert functional.state[ours[0]]["step"].item() == 4.0
    assert set(functional.state[ours[0]]) >= {"step", "exp_avg", "exp_avg_sq"}


def test_the_functional_adamw_of_torch_without_eps():
    from torch.distributed.optim import _FunctionalAdamW

    ours, theirs = parameters(), parameters()
    functional = distributed.FusedAdamW(ours, 1e-2, eps=0.0, weight_decay=0.1)
    plain = _FunctionalAdamW(theirs, 1e-2, eps=0.0, weight_decay=0.1)
    for step in range(4):
        grads = give_gradients(theirs, seed=step)
        functional.step(grads)
        plain.step([grad.clone() for grad in grads])
    assert_same(ours, theirs)


def test_missing_gradients_are_skipped_and_the_first_given_one_counts():
    params = parameters()
    functional = distributed.FusedAdamW(params)
    grads = give_gradients(params, seed=0)
    functional.step([grads[0], *[None] * 4])
    functional.step(list(grads))
    assert [functional.state[param]["step"].item() for param in params] == [2.0, 1.0, 1.0, 1.0, 1.0]
    expected = parameters()[1].detach()
    scale = 1e-3 * (1 - 0.999**2) ** 0.5 / (1 - 0.9**2)
    m, v = 0.1 * grads[1], 0.001 * grads[1] ** 2
    assert_same([params[1]], [expected - scale * m / (v.sqrt() + 1e-6)])


def _reversed_in_memory(tensor):
    order = tuple(reversed(range(tensor.dim())))
    return tensor.permute(order).contiguous().permute(order)


def test_mixed_dtypes_and_layouts():
    params = [*parameters(dtype=torch.float64), *parameters(), torch.ones(4, 6)[:, ::2]]
    others = [param.detach().clone() for param in params]
    grads = [_reversed_in_memory(torch.full_like(param, 0.5)) for param in params]
    distributed.FusedAdamW(params, 0.1).step(grads)
    assert_same(params, [other - 0.1 for other in others], rtol=1e-3, atol=1e-3)


def test_the_functional_form_can_be_registered_with_torch():
    from torch.distributed.optim import utils

    class Marker(torch.optim.Optimizer):
        pass

    utils.register_functional_optim("perftool_fused_adamw", distributed.FusedAdamW)
    assert utils.functional_optim_map["perftool_fused_adamw"] is distributed.FusedAdamW
    params = parameters()
    made = utils.functional_optim_map["perftool_fused_adamw"]([], lr=0.1, _allow_empty_param_list=True)
    made.param_group["params"].extend(params)
    before = [param.detach().clone() for param in params]
    made.step([torch.ones_like(param) for param in params])
    assert_same(params, [value - 0.1 for value in before], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "Invalid learning rate: -1.0"),
        ({"eps": -1.0}, "Invalid epsilon value: -1.0"),
        ({"betas": (1.0, 0.5)}, "Invalid beta parameter at index 0: 1.0"),
        ({"betas": (0.5, -1.0)}, "Invalid beta parameter at index 1: -1.0"),
        ({"weight_decay": -1.0}, "Invalid weight_decay value: -1.0"),
    ],
)
def test_arguments_out_of_range(options, message):
    with pytest.raises(ValueError, match=r".") as error:
        distributed.FusedAdamW(parameters(), **options)
    assert str(error.value) == message


def test_wrong_arguments_raise():
    params = parameters()
    functional = distributed.FusedAdamW(params)
    with pytest.raises(ValueError, match="the gradients passed in does not equal to the size"):
        functional.step([None])
    with pytest.raises(IndexError):
        functional.step([None] * len(params))
    with pytest.raises(RuntimeError, match=r"does not support step_param\(\) as of now"):
        functional.step_param(params[0], None)
    with pytest.raises(ValueError, match="optimizer got an empty parameter list"):
        distributed.FusedAdamW([])
    assert distributed.FusedAdamW([], _allow_empty_param_list=True).param_group == {"params": []}
