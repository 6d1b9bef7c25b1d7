"""Compares FusedEMA with the reference, torch's AveragedModel and the definition."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from training import assert_same

from perftool.fused import FusedAdamW, FusedEMA


def small(layers=20):
    """Return a model with many small tensors, and with buffers of floating-point numbers and integers."""
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(4, 4) for _ in range(layers)], nn.BatchNorm1d(4))


def train(model, seed, optimizer=None):
    """Change the parameters and the buffers."""
    torch.manual_seed(seed)
    model.train()
    model(torch.randn(8, 4)).square().sum().backward()
    if optimizer is not None:
        optimizer.step()
        optimizer.zero_grad()
        return
    with torch.no_grad():
        for param in model.parameters():
            param.add_(torch.randn_like(param))


@pytest.mark.parametrize("layers", [2, 20])
@pytest.mark.parametrize("fused_optimizer", [True, False])
@pytest.mark.parametrize("updates", [1000, 4000])
def test_every_entry_of_the_state_dict_follows_the_definition(layers, fused_optimizer, updates):
    model = small(layers)
    optimizer = FusedAdamW(model.parameters(), 0.1) if fused_optimizer else None
    ema = FusedEMA(model, 0.99, updates=updates)
    expected = {name: value.double() for name, value in copy.deepcopy(model).state_dict().items()}
    for step in range(4):
        train(model, step, optimizer)
        ema.update(model)
        decay = 0.99 * (1 - math.exp(-(updates + 1 + step) / 2000))
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                expected[name] = decay * expected[name] + (1 - decay) * value.double()
            else:
                expected[name] = value.double()
    assert ema.updates == updates + 4
    assert list(ema.ema.state_dict()) == list(expected)
    assert_same(ema.ema.state_dict().values(), expected.values())
    assert ema.ema[-1].num_batches_tracked.item() == 4


def test_a_constant_decay_agrees_with_torchs_averaged_model():
    model = small()
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    averaged.update_parameters(model)
    ema = FusedEMA(model, 0.9)
    ema.decay = lambda updates: 0.9
    for step in range(3):
        train(model, step)
        averaged.update_parameters(model)
        ema.update(model)
    assert_same(ema.ema.parameters(), averaged.module.parameters())


def _replace_parameter(model):
    model[3].weight.data = torch.ones(4, 4)


def _replace_module(model):
    model[3] = nn.Linear(4, 4)


def _replace_buffer(model):
    model[-1].running_mean = torch.ones(4)
    model[-1].num_batches_tracked = model[-1].num_batches_tracked + 1


def _turn_parameter(model):
    model[3].weight.data = model[3].weight.data.t()


def _widen_parameter(model):
    model[3].weight.data = model[3].weight.data.double()


CHANGES = [_replace_parameter, _replace_module, _replace_buffer, _turn_parameter, _widen_parameter]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("updates", [500, 4000])
def test_replaced_parameters_are_averaged(change, updates):
    model = small()
    ema = FusedEMA(model, updates=updates)
    expected = [value.double() for value in copy.deepcopy(model).state_dict().values()]
    for step in range(4):
        if step < 2:
            train(model, step)
        if step == 2:
            change(model)
        with torch.no_grad():
            for param in model.parameters():
                param.add_(torch.randn_like(param))
        ema.update(model)
        decay = 0.9999 * (1 - math.exp(-(updates + 1 + step) / 2000))
        for average, value in zip(expected, model.state_dict().values(), strict=True):
            average.lerp_(value.double(), 1 - decay if value.is_floating_point() else 1.0)
    assert_same(ema.ema.state_dict().values(), expected)


def test_a_changed_average_is_continued():
    model = small()
    ema = FusedEMA(model, 0.5, updates=10**6)
    train(model, 0)
    ema.update(model)
    ema.ema.load_state_dict({name: torch.zeros_like(value) for name, value in ema.ema.state_dict().items()})
    ema.ema[0].weight.data = torch.full((4, 4), 2.0)
    ema.update(model)
    assert_same([ema.ema[0].weight], [1.0 + model[0].weight / 2])
    assert_same([ema.ema[1].weight], [model[1].weight / 2])


def test_autograd_notices_that_an_average_changed():
    model = small()
    ema = FusedEMA(model, updates=4000)
    inputs = torch.ones(2, 4, requires_grad=True)
    loss = ema.ema[:3](inputs).sum()
    ema.update(model)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_the_average_is_a_frozen_copy_in_evaluation_mode():
    model = nn.DataParallel(small())
    ema = FusedEMA(model)
    assert isinstance(ema.ema, nn.Sequential)
    assert not ema.ema.training
    assert not any(param.requires_grad for param in ema.ema.parameters())
    assert ema.ema[0].weight.data_ptr() != model.module[0].weight.data_ptr()
    ema.update(model)
    assert ema.updates == 1


def test_attributes_are_copied_on_request():
    model = small()
    ema = FusedEMA(model)
    model.names, model.stride, model.reducer, model._hidden = ["a"], 8, object(), 1
    ema.update_attr(model, include=("names",))
    assert ema.ema.names == ["a"]
    assert not hasattr(ema.ema, "stride")
    ema.update_attr(model)
    assert ema.ema.stride == 8
    assert not hasattr(ema.ema, "reducer")
    assert not hasattr(ema.ema, "_hidden")


def test_a_negative_decay_is_refused():
    with pytest.raises(ValueError, match=r"Invalid decay value: -0\.1"):
        FusedEMA(small(), -0.1)
