"""No optimizer, average or clipping moves a parameter, gradient or state to other memory, so checkpoints stay
complete.
"""

from __future__ import annotations

import io
import weakref

import pytest
import torch
from safetensors.torch import load_file, save_model
from torch import nn

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

OPTIMIZERS = {
    "sgd": lambda params: FusedSGD(params, 0.1, 0.9),
    "adagrad": FusedAdagrad,
    "adamw": FusedAdamW,
    "lamb": FusedLamb,
    "lars": lambda params: FusedLars(FusedResourceApplyMomentum(params, 0.1, 0.9), [1] * len(params)),
}
EVERY = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)


def trained(make):
    """Return a model of 20 small layers, its optimizer and its average, after two steps, each with new gradients."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(20)])
    optimizer, average = make(list(model.parameters())), FusedEMA(model)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().sum().backward()
        FusedClipNorm(model.parameters(), 0.1).clip_norm(model.parameters())
        optimizer.step()
        average.update(model)
    return model, optimizer, average


@EVERY
def test_every_tensor_has_a_storage_of_its_own_size(make):
    model, optimizer, average = trained(make)
    states = [each for entry in optimizer.state.values() for each in entry.values() if isinstance(each, torch.Tensor)]
    tensors = [*model.parameters(), *(param.grad for param in model.parameters()), *states, *average.ema.parameters()]
    assert len(tensors) >= 120
    assert all(each.untyped_storage().nbytes() == each.numel() * each.element_size() for each in tensors)


@EVERY
def test_parameters_and_gradients_stay_where_they_are(make):
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(20)])
    optimizer = make(list(model.parameters()))
    places = [param.data_ptr() for param in model.parameters()]
    model(torch.ones(4, 8)).square().sum().backward()
    grads = [param.grad for param in model.parameters()]
    for _ in range(4):
        optimizer.step()
    assert [param.data_ptr() for param in model.parameters()] == places
    assert all(param.grad is grad for param, grad in zip(model.parameters(), grads, strict=True))


@EVERY
def test_gradients_that_are_dropped_are_gone(make):
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(20)])
    optimizer = make(list(model.parameters()))
    model(torch.ones(4, 8)).square().sum().backward()
    optimizer.step()
    grads = [weakref.ref(param.grad) for param in model.parameters()]
    optimizer.zero_grad(set_to_none=True)
    assert not any(grad() is not None for grad in grads)


@EVERY
def test_safetensors_writes_all_tensors(make, tmp_path):
    model, _, average = trained(make)
    for each in (model, average.ema):
        save_model(each, str(tmp_path / "model.safetensors"))
        saved = load_file(tmp_path / "model.safetensors")
        assert saved.keys() == each.state_dict().keys()
        assert all(torch.equal(saved[name], value) for name, value in each.state_dict().items())


def test_one_layer_is_saved_alone():
    model, _, _ = trained(FusedAdamW)
    file = io.BytesIO()
    torch.save(model[3].weight, file)
    alone = io.BytesIO()
    torch.save(model[3].weight.detach().clone().requires_grad_(), alone)
    assert len(file.getvalue()) <= 1.2 * len(alone.getvalue())


def test_accelerate_saves_the_model_and_its_state(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(20)])
    accelerator = accelerate.Accelerator(cpu=True)
    prepared, optimizer = accelerator.prepare(model, FusedAdamW(model.parameters(), 0.01))
    loss = prepared(torch.ones(4, 8)).square().sum()
    accelerator.backward(loss)
    optimizer.step()
    accelerator.save_model(prepared, tmp_path / "model")
    assert load_file(tmp_path / "model" / "model.safetensors").keys() == model.state_dict().keys()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    moments = [entry["exp_avg"].clone() for entry in optimizer.optimizer.state.values()]
    accelerator.save_state(tmp_path / "state")
    optimizer.step()
    accelerator.load_state(tmp_path / "state")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    loaded = [entry["exp_avg"] for entry in optimizer.optimizer.state.values()]
    assert all(map(torch.equal, loaded, moments))


def test_a_view_taken_before_the_first_step_sees_every_step():
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(40)])
    views = [param.detach().view(-1) for param in model.parameters()]
    optimizer = FusedAdamW(model.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().sum().backward()
        optimizer.step()
    assert all(
        torch.equal(view, param.detach().view(-1)) for view, param in zip(views, model.parameters(), strict=True)
    )


def test_autograd_notices_that_a_parameter_has_changed():
    params = [nn.Parameter(torch.ones(3)) for _ in range(40)]
    for param in params:
        param.grad = torch.ones(3)
    optimizer = FusedSGD(params, 0.1)
    loss = (params[0] ** 2).sum()
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
