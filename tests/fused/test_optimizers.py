"""Compares FusedSGD, FusedAdagrad and FusedAdamW with the reference, torch.optim and loops in double precision."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from training import MANY_SHAPES, ODD_SHAPES, assert_same, give_gradients, parameters

from perftool.fused import FusedAdagrad, FusedAdamW, FusedLamb, FusedSGD, dispatch
from perftool.fused.optimizers.adamw import adamw_
from perftool.fused.optimizers.sgd import sgd_

STAGES = pytest.mark.parametrize("backend", ["", "fast", "reference"])
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}


@STAGES
@pytest.mark.parametrize(
    "options",
    [{}, {"momentum": 0.9}, {"momentum": 0.9, "weight_decay": 0.1}, {"momentum": 0.9, "nesterov": True}],
)
def test_sgd_agrees_with_torch(monkeypatch, backend, options):
    monkeypatch.setattr(dispatch, "wanted", backend)
    ours, theirs = parameters(), parameters()
    fused = FusedSGD(ours, 0.1, **options)
    plain = torch.optim.SGD(theirs, 0.1, **options, foreach=False)
    for step in range(5):
        give_gradients(ours, theirs, seed=step)
        assert fused.step() is None
        plain.step()
    assert_same(ours, theirs)


@STAGES
def test_sgd_starts_its_buffer_at_zero_so_dampening_acts_on_the_first_gradient(monkeypatch, backend):
    monkeypatch.setattr(dispatch, "wanted", backend)
    (param,) = [nn.Parameter(torch.tensor([1.0, 2.0]))]
    other = nn.Parameter(torch.tensor([5.0]))
    fused = FusedSGD([param, other], 0.5, 0.9, 0.0, 0.25)
    param.grad, other.grad = torch.tensor([1.0, -2.0]), torch.tensor([4.0])
    fused.step()
    assert param.tolist() == [1.0 - 0.5 * 0.75, 2.0 + 0.5 * 0.75 * 2.0]
    assert other.tolist() == [5.0 - 0.5 * 0.75 * 4.0]


def test_sgd_takes_weight_decay_before_dampening():
    fused = FusedSGD(parameters(), 0.1, 0.9, 0.3, 0.2)
    assert (fused.defaults["weight_decay"], fused.defaults["dampening"]) == (0.3, 0.2)


@STAGES
def test_adagrad_agrees_with_torch(monkeypatch, backend):
    monkeypatch.setattr(dispatch, "wanted", backend)
    ours, theirs = parameters(), parameters()
    options = {"lr": 0.1, "lr_decay": 0.05, "weight_decay": 0.01, "initial_accumulator_value": 0.2}
    fused = FusedAdagrad(ours, **options)
    plain = torch.optim.Adagrad(theirs, **options, foreach=False)
    for step in range(5):
        give_gradients(ours, theirs, seed=step)
        fused.step()
        plain.step()
    assert_same(ours, theirs)


def test_adagrad_freezes_its_learning_rate_and_returns_none():
    ours, theirs = parameters(), parameters()
    fused, plain = FusedAdagrad(ours, lr=0.1), torch.optim.Adagrad(theirs, lr=0.1)
    give_gradients(ours, theirs, seed=0)
    fused.param_groups[0]["lr"] = 1e9
    with pytest.warns(UserWarning, match="a scheduler has no effect"):
        assert fused.step(lambda: torch.tensor(3.0)) is None
    plain.step()
    assert_same(ours, theirs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fused.step()


def test_adagrad_keeps_a_rate_per_group_and_warns_of_the_difference():
    ours, theirs = parameters(), parameters()
    with pytest.warns(UserWarning, match="here each group keeps its own"):
        fused = FusedAdagrad([{"params": ours[:2]}, {"params": ours[2:], "lr": 0.5}], lr=0.1)
    plain = torch.optim.Adagrad([{"params": theirs[:2]}, {"params": theirs[2:], "lr": 0.5}], lr=0.1)
    give_gradients(ours, theirs, seed=0)
    fused.step()
    plain.step()
    assert_same(ours, theirs)


@STAGES
@pytest.mark.parametrize("bias_correction", [True, False])
def test_adamw_adds_eps_to_the_plain_root(monkeypatch, backend, bias_correction):
    """Compare with a loop that follows the definition in double precision. The gradients are near eps, where torch's
    formula gives other results.
    """
    monkeypatch.setattr(dispatch, "wanted", backend)
    ours = parameters()
    weights = [param.detach().double() for param in ours]
    moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in weights]
    fused = FusedAdamW(ours, 1e-2, (0.8, 0.95), 1e-3, 0.1, bias_correction)
    for step in range(1, 6):
        grads = give_gradients(ours, seed=step, scale=1e-3)
        fused.step()
        scale = 1e-2 * math.sqrt(1 - 0.95**step) / (1 - 0.8**step) if bias_correction else 1e-2
        for weight, grad, (m, v) in zip(weights, grads, moments, strict=True):
            m.copy_(0.8 * m + 0.2 * grad.double())
            v.copy_(0.95 * v + 0.05 * grad.double() ** 2)
            weight.copy_(weight * (1 - 1e-2 * 0.1) - scale * m / (v.sqrt() + 1e-3))
    assert_same(ours, weights)


def test_adamw_without_eps_agrees_with_torch():
    ours, theirs = parameters(), parameters()
    fused = FusedAdamW(ours, 1e-2, eps=0.0, weight_decay=0.1)
    plain = torch.optim.AdamW(theirs, 1e-2, eps=0.0, weight_decay=0.1, foreach=False)
    for step in range(20):
        give_gradients(ours, theirs, seed=step)
        fused.step()
        plain.step()
    assert_same(ours, theirs)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_every_dtype_follows_the_reference(dtype):
    ours, theirs = parameters(dtype=dtype), [p.detach().double() for p in parameters(dtype=dtype)]
    moments = [[torch.zeros_like(p) for p in theirs] for _ in range(2)]
    fused = FusedAdamW(ours, 1e-2, weight_decay=0.1, eps=1e-4)
    for step in range(1, 4):
        grads = [grad.double() for grad in give_gradients(ours, seed=step)]
        fused.step()
        options = {"lr": 1e-2, "beta1": 0.9, "beta2": 0.999, "eps": 1e-4, "weight_decay": 0.1}
        adamw_(theirs, grads, *moments, step=step, **options)
    assert_same(ours, theirs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@settings(max_examples=12)
@given(
    shapes=st.lists(st.lists(st.integers(0, 9), max_size=3).map(tuple), min_size=1, max_size=40),
    missing=st.sets(st.integers(0, 39)),
)
def test_any_shapes_and_missing_gradients_follow_the_reference(shapes, missing):
    ours, theirs = parameters(shapes), parameters(shapes)
    fused = FusedSGD(ours, 0.1, 0.9, 0.01)
    plain = torch.optim.SGD(theirs, 0.1, 0.9, weight_decay=0.01, foreach=False)
    for step in range(4):
        give_gradients(ours, theirs, seed=step)
        for i in missing if step % 2 else ():
            if i < len(shapes):
                ours[i].grad = theirs[i].grad = None
        fused.step()
        plain.step()
    assert_same(ours, theirs)


@pytest.mark.parametrize("make", [FusedAdamW, FusedAdagrad, lambda params: FusedSGD(params, 0.1, 0.9)])
def test_nan_and_infinity_stay_in_their_element(make):
    ours, clean = parameters(MANY_SHAPES), parameters(MANY_SHAPES)
    fused, other = make(ours), make(clean)
    give_gradients(ours, clean, seed=0)
    ours[1].grad[0, 0], ours[3].grad[0, 0, 0] = math.nan, math.inf
    fused.step()
    other.step()
    assert math.isnan(ours[1].data[0, 0])
    assert not math.isfinite(ours[3].data[0, 0, 0])
    ours[1].data[0, 0], ours[3].data[0, 0, 0] = clean[1][0, 0], clean[3][0, 0, 0]
    assert_same(ours, clean)


def test_groups_have_their_own_options_and_schedulers_change_them():
    ours, theirs = parameters(), parameters()

    def groups(params):
        return [{"params": params[:2], "lr": 0.5, "weight_decay": 0.1}, {"params": params[2:]}]

    fused, plain = FusedSGD(groups(ours), 0.1, 0.9), torch.optim.SGD(groups(theirs), 0.1, 0.9)
    schedules = [torch.optim.lr_scheduler.StepLR(each, 2, gamma=0.1) for each in (fused, plain)]
    for step in range(6):
        give_gradients(ours, theirs, seed=step)
        for optimizer, schedule in zip((fused, plain), schedules, strict=True):
            optimizer.step()
            schedule.step()
    assert fused.param_groups[0]["lr"] == pytest.approx(0.5e-3)
    assert_same(ours, theirs)


def test_a_group_added_later_is_stepped():
    ours, theirs = parameters(MANY_SHAPES), parameters(MANY_SHAPES)
    late, late_too = parameters(seed=1), parameters(seed=1)
    fused, plain = FusedSGD(ours, 0.1, 0.9), torch.optim.SGD(theirs, 0.1, 0.9)
    for step in range(4):
        if step == 2:
            fused.add_param_group({"params": late, "lr": 0.3})
            plain.add_param_group({"params": late_too, "lr": 0.3})
        give_gradients(ours, theirs, seed=step)
        give_gradients(late, late_too, seed=step)
        fused.step()
        plain.step()
    assert_same([*ours, *late], [*theirs, *late_too])


def test_mixed_dtypes_in_one_group():
    dtypes = (torch.float32, torch.float64, torch.bfloat16)
    ours = [p for dtype in dtypes for p in parameters(dtype=dtype)]
    theirs = [p for dtype in dtypes for p in parameters(dtype=dtype)]
    fused, plain = FusedSGD(ours, 0.1, 0.9), torch.optim.SGD(theirs, 0.1, 0.9, foreach=False)
    for step in range(3):
        give_gradients(ours, theirs, seed=step)
        fused.step()
        plain.step()
    assert_same(ours, theirs, rtol=1e-2, atol=1e-2)


def test_a_closure_is_run_with_gradients_and_its_loss_returned():
    (param,) = parameters([(3,)])
    fused = FusedSGD([param], 0.1)

    def closure():
        fused.zero_grad()
        loss = (param**2).sum()
        loss.backward()
        return loss

    expected = param.detach() * (1 - 2 * 0.1)
    loss = fused.step(closure)
    assert loss.item() == pytest.approx((expected / 0.8).pow(2).sum().item())
    assert_same([param], [expected])


@pytest.mark.parametrize("layout", ["channels_last", "transposed", "with gaps", "transposed gradient"])
def test_memory_layouts(layout):
    def build():
        values = torch.arange(2 * 3 * 4 * 4, dtype=torch.float32).reshape(2, 3, 4, 4) / 50
        tensor = {
            "channels_last": lambda: values.to(memory_format=torch.channels_last),
            "transposed": lambda: values.transpose(0, 3).contiguous().transpose(0, 3),
            "with gaps": lambda: values.repeat(1, 1, 1, 2)[..., ::2],
            "transposed gradient": values.clone,
        }[layout]()
        param = nn.Parameter(tensor)
        return param, nn.Parameter(torch.ones(3))

    (ours, other), (theirs, other_too) = build(), build()
    fused = FusedAdamW([ours, other], 0.1, eps=0.0)
    plain = torch.optim.AdamW([theirs, other_too], 0.1, eps=0.0, weight_decay=0.0, foreach=False)
    for step in range(3):
        give_gradients([ours, other], [theirs, other_too], seed=step)
        if layout == "transposed gradient":
            ours.grad = ours.grad.transpose(2, 3).contiguous().transpose(2, 3)
        fused.step()
        plain.step()
    assert_same([ours, other], [theirs, other_too])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: FusedSGD(p, -1.0), "Invalid learning rate: -1.0"),
        (lambda p: FusedSGD(p, 0.1, -1.0), "Invalid momentum value: -1.0"),
        (lambda p: FusedSGD(p, 0.1, weight_decay=-1.0), "Invalid weight_decay value: -1.0"),
        (lambda p: FusedSGD(p, 0.1, dampening=-1.0), "Invalid dampening value: -1.0"),
        (
            lambda p: FusedSGD(p, 0.1, nesterov=True),
            "Nesterov momentum requires a momentum and zero dampening",
        ),
        (
            lambda p: FusedSGD(p, 0.1, 0.9, 0.0, 0.1, True),
            "Nesterov momentum requires a momentum and zero dampening",
        ),
        (lambda p: FusedAdagrad(p, -1.0), "Invalid learning rate: -1.0"),
        (lambda p: FusedAdagrad(p, lr_decay=-1.0), "Invalid lr_decay value: -1.0"),
        (lambda p: FusedAdagrad(p, weight_decay=-1.0), "Invalid weight_decay value: -1.0"),
        (
            lambda p: FusedAdagrad(p, initial_accumulator_value=-1.0),
            "Invalid initial_accumulator_value value: -1.0",
        ),
        (lambda p: FusedAdagrad(p, eps=-1.0), "Invalid epsilon value: -1.0"),
        (lambda p: FusedAdamW(p, -1.0), "Invalid learning rate: -1.0 - should be >= 0.0"),
        (lambda p: FusedAdamW(p, betas=(1.0, 0.9)), "Invalid beta parameter: 1.0 - should be in [0.0, 1.0["),
        (
            lambda p: FusedAdamW(p, betas=(0.9, -0.1)),
            "Invalid beta parameter: -0.1 - should be in [0.0, 1.0[",
        ),
        (lambda p: FusedAdamW(p, eps=-1.0), "Invalid epsilon value: -1.0 - should be >= 0.0"),
    ],
)
def test_arguments_out_of_range(make, message):
    with pytest.raises(ValueError, match=r".") as error:
        make(parameters())
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: FusedSGD(p, 0.1), "SGD does not support sparse gradients, please consider SparseSGD"),
        (FusedAdagrad, "Adagrad does not support sparse gradients, please consider SparseAdagrad"),
        (FusedAdamW, "Adam does not support sparse gradients, please consider SparseAdam"),
    ],
)
@pytest.mark.parametrize("shapes", [ODD_SHAPES, MANY_SHAPES])
def test_sparse_gradients_are_refused(make, message, shapes):
    params = parameters(shapes)
    give_gradients(params, seed=0)
    params[1].grad = params[1].grad.to_sparse()
    with pytest.raises(RuntimeError, match=message):
        make(params).step()


def test_integer_parameters_are_refused():
    param = torch.ones(3, dtype=torch.int32)
    param.grad = torch.ones(3, dtype=torch.int32)
    with pytest.raises(TypeError, match="floating-point"):
        FusedSGD([param], 0.1).step()


@pytest.mark.parametrize(
    "make",
    [
        lambda params: FusedAdamW(params, 0.05),
        lambda params: FusedAdagrad(params, 0.1),
        lambda params: FusedSGD(params, 0.05, 0.9),
        lambda params: FusedLamb(params, 0.05),
    ],
)
def test_a_small_model_converges(make):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    inputs = torch.randn(64, 4)
    targets = inputs.sum(dim=1, keepdim=True).sin()
    optimizer = make(model.parameters())
    losses = []
    for _ in range(200):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sgd_in_half_precision_is_right_where_the_kernel_of_torch_is_not(dtype):
    shapes = [(100,), (33, 7)]
    ours, theirs = parameters(shapes, dtype), [p.detach().double() for p in parameters(shapes, dtype)]
    buffers = [torch.zeros_like(p) for p in theirs]
    fused = FusedSGD(ours, 0.1, 0.9, 0.1)
    for step in range(3):
        grads = [grad.double() for grad in give_gradients(ours, seed=step)]
        fused.step()
        sgd_(theirs, grads, buffers, lr=0.1, momentum=0.9, weight_decay=0.1)
    assert_same(ours, theirs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
