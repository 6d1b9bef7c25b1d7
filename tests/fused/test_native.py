"""The native kernels against the plain loops, and what happens where they cannot run."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from training import MANY_SHAPES, assert_same, give_gradients, parameters

from perftool.fused import (
    FusedAdagrad,
    FusedAdamW,
    FusedClipNorm,
    FusedEMA,
    FusedLamb,
    FusedLars,
    FusedResourceApplyMomentum,
    FusedSDPA,
    FusedSGD,
    dispatch,
)
from perftool.fused.dispatch import backends, choose
from perftool.fused.optimizers import kernels, native

LONG_SHAPES = ((70_001,), (3, 5), (2, 16_384), (1,))
"""Several pieces per tensor, whole and broken ones."""


def lars(params, **options):
    base = FusedResourceApplyMomentum(params, 0.05, 0.9, 0.01, **options)
    return FusedLars(base, ([1, 1, 0] * len(params))[: len(params)], 0.1, **options)


MAKERS = {
    "sgd": lambda params, **options: FusedSGD(params, 0.05, **options),
    "sgd with decay": lambda params, **options: FusedSGD(params, 0.05, weight_decay=0.1, **options),
    "momentum": lambda params, **options: FusedSGD(params, 0.05, 0.9, 0.1, 0.2, **options),
    "nesterov": lambda params, **options: FusedSGD(params, 0.05, 0.9, 0.1, nesterov=True, **options),
    "adagrad": lambda params, **options: FusedAdagrad(params, 0.05, 0.1, 0.1, 0.2, **options),
    "adamw": lambda params, **options: FusedAdamW(params, 0.01, weight_decay=0.1, **options),
    "adamw uncorrected": lambda params, **options: FusedAdamW(params, 0.01, bias_correction=False, **options),
    "bf16 moments": lambda params, **options: FusedAdamW(params, 0.01, moments_dtype=torch.bfloat16, **options),
    "lamb": lambda params, **options: FusedLamb(params, 0.01, max_grad_norm=0.5, **options),
    "lamb without decay": lambda params, **options: FusedLamb(params, 0.01, weight_decay=0.0, **options),
    "lamb on request": lambda params, **options: FusedLamb(params, 0.01, weight_decay=0.0, use_lamb=True, **options),
    "lamb, whole gradients": lambda params, **options: FusedLamb(
        params, 0.01, grad_averaging=False, bias_correction=False, max_grad_norm=None, **options
    ),
    "lars": lars,
}
EVERY = pytest.mark.parametrize("name", MAKERS)


def tolerance(name):
    """A bfloat16 number that lies between two may be rounded to either."""
    return {"rtol": 1e-2, "atol": 1e-3} if name == "bf16 moments" else {"rtol": 1e-5, "atol": 1e-6}


def trained(name, params, steps=3, **options):
    """The optimizer after steps with new gradients; the third parameter has none in the second step."""
    optimizer = MAKERS[name](params, **options)
    for step in range(steps):
        give_gradients(params, seed=step)
        if step == 1:
            params[2].grad = None
        optimizer.step()
    return optimizer


@EVERY
@pytest.mark.parametrize("shapes", [MANY_SHAPES, LONG_SHAPES], ids=["many", "long"])
@pytest.mark.usefixtures("native_kernels")
def test_every_optimizer_follows_the_plain_loop(name, shapes):
    natively, plainly = parameters(shapes), parameters(shapes)
    ours = trained(name, natively, backend="native")
    theirs = trained(name, plainly, backend="reference")
    assert_same(natively, plainly, **tolerance(name))
    for one, other in zip(natively, plainly, strict=True):
        states = ours.state[one], theirs.state[other]
        assert states[0].keys() == states[1].keys()
        tensors = [[each for each in entry.values() if isinstance(each, torch.Tensor)] for entry in states]
        assert_same(*tensors, **tolerance(name))
        assert_same([one.grad], [other.grad])


@EVERY
@pytest.mark.usefixtures("native_kernels")
def test_nan_and_infinity_are_those_of_the_plain_loop(name):
    results = []
    for backend in ("native", "reference"):
        params = parameters(((5,), (4,), (3,)))
        optimizer = MAKERS[name](params, backend=backend)
        for step in range(2):
            give_gradients(params, seed=step)
            params[0].grad[1], params[0].grad[2] = float("nan"), float("inf")
            optimizer.step()
        results.append([param.detach() for param in params])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True, **tolerance(name))


@EVERY
@pytest.mark.usefixtures("native_kernels")
def test_a_loaded_state_continues_bit_by_bit(name):
    params = parameters(MANY_SHAPES)
    optimizer = trained(name, params, backend="native")
    again = [nn.Parameter(param.detach().clone()) for param in params]
    resumed = MAKERS[name](again, backend="native")
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for step in range(3, 5):
        give_gradients(params, again, seed=step)
        optimizer.step()
        resumed.step()
    assert all(map(torch.equal, params, again))


class Labelled(nn.Parameter):
    """A subclass without behaviour of its own: ordinary, but not a type that the native kernels know."""


def others(kind):
    """Parameters that are not for the native kernels, among some that are."""
    params = parameters(((4, 6), (3,), (5, 2)))
    if kind == "other dtypes":
        return [params[0], *(nn.Parameter(param.detach().to(torch.float64)) for param in params[1:])]
    if kind == "subclass":
        return [*params[:2], Labelled(params[2].detach())]
    if kind == "strided":
        return [*params, nn.Parameter(torch.linspace(-1, 1, 24).view(4, 6)[:, ::2])]
    if kind == "transposed":
        return [*params, nn.Parameter(torch.linspace(-1, 1, 24).view(4, 6).t())]
    return [*params, nn.Parameter(torch.empty(0)), nn.Parameter(torch.tensor(0.5))]  # empty


@EVERY
@pytest.mark.parametrize("kind", ["other dtypes", "subclass", "strided", "transposed", "empty"])
@pytest.mark.usefixtures("native_kernels")
def test_what_is_not_for_the_native_kernels_is_stepped_all_the_same(name, kind):
    natively, plainly = others(kind), others(kind)
    trained(name, natively, backend="native")
    trained(name, plainly, backend="reference")
    assert_same(natively, plainly, **tolerance(name))


@pytest.mark.parametrize("limit", [1e-2, 1e6])
@pytest.mark.parametrize("shapes", [MANY_SHAPES, LONG_SHAPES], ids=["many", "long"])
@pytest.mark.usefixtures("native_kernels")
def test_clipping(shapes, limit):
    ours, theirs = parameters(shapes), parameters(shapes)
    give_gradients(ours, theirs, seed=0)
    versions = [param.grad._version for param in ours]
    found = FusedClipNorm(ours, limit, backend="native").clip_norm(ours)
    expected = nn.utils.clip_grad_norm_(theirs, limit)
    assert_same([found], [expected.view(1)])
    assert_same([param.grad for param in ours], [param.grad for param in theirs])
    assert all((param.grad._version > was) is (limit < 1) for param, was in zip(ours, versions, strict=True))


@pytest.mark.parametrize("name", ["momentum", "sgd", "adagrad", "adamw"])
@pytest.mark.usefixtures("native_kernels")
def test_clipping_folded_into_the_step(name):
    ours, theirs = parameters(MANY_SHAPES), parameters(MANY_SHAPES)
    optimizers = MAKERS[name](ours, backend="native"), MAKERS[name](theirs)
    clip = FusedClipNorm(ours, 0.1, optimizer=optimizers[0], backend="native")
    for step in range(2):
        give_gradients(ours, theirs, seed=step)
        clip.clip_norm(ours)
        nn.utils.clip_grad_norm_(theirs, 0.1)
        for optimizer in optimizers:
            optimizer.step()
    assert_same(ours, theirs)


@pytest.mark.usefixtures("native_kernels")
def test_an_average_follows_the_plain_loop():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(300, 70), nn.BatchNorm1d(70), nn.Linear(70, 3))
    averages = [FusedEMA(model, 0.9, 1000, backend=backend) for backend in ("native", "reference")]
    for step in range(3):
        model(torch.randn(4, 300, generator=torch.Generator().manual_seed(step)))
        with torch.no_grad():
            for param in model.parameters():
                param.mul_(1.1)
        for average in averages:
            average.update(model)
    assert_same(*(average.ema.state_dict().values() for average in averages))


@pytest.mark.usefixtures("native_kernels")
def test_memory_is_what_the_user_sees_at_every_step():
    params = parameters(MANY_SHAPES)
    optimizer = trained("adamw", params, backend="native")
    params[3].data = params[3].detach().clone()
    place = [param.data_ptr() for param in params]
    expected, copied = copy.deepcopy((params, optimizer))
    copied.backend = "reference"
    give_gradients(params, expected, seed=9)
    optimizer.step()
    copied.step()
    assert_same(params, expected)
    assert [param.data_ptr() for param in params] == place


class Watching(TorchDispatchMode):
    """Notes the operators that run."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.add(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


@pytest.mark.usefixtures("native_kernels")
def test_who_records_operators_gets_to_see_them():
    params, watched = parameters(), parameters()
    optimizers = [FusedAdamW(each, backend="native") for each in (params, watched)]
    for step in range(2):
        give_gradients(params, watched, seed=step)
        optimizers[0].step()
        with Watching() as watching:
            optimizers[1].step()
        assert "_fused_adamw_" in watching.seen
    assert_same(watched, params)


@pytest.fixture
def no_compiler(monkeypatch):
    """A machine on which the build fails, and a process that has not said so yet."""
    monkeypatch.setattr(native, "_attempt", lambda: native.NativeError("the native kernels could not be built: no c++"))
    monkeypatch.setattr(dispatch, "_said", set())
    kernels.obstacle.cache_clear()
    dispatch.forget_choices()
    yield
    kernels.obstacle.cache_clear()
    dispatch.forget_choices()


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_it_says_so_once_and_steps_as_always():
    ours, theirs = parameters(), parameters()
    with pytest.warns(UserWarning, match="FusedLamb runs 'fast' instead of 'native': .*no c\\+\\+"):
        optimizers = FusedLamb(ours, backend="native"), FusedLamb(theirs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(2):
            give_gradients(ours, theirs, seed=step)
            for optimizer in optimizers:
                optimizer.step()
        give_gradients(ours, theirs, seed=2)
        lars(ours, backend="native").step()
    lars(theirs).step()
    assert_same(ours, theirs)


@pytest.mark.usefixtures("no_compiler")
def test_the_environment_asks_all_ops_and_those_without_run_as_always(monkeypatch):
    monkeypatch.setenv(dispatch.ENVIRONMENT_VARIABLE, "native")
    q = torch.ones(1, 1, 2, 4)
    assert torch.equal(FusedSDPA.apply(q, q, q), q)
    assert choose("FusedSDPA", "cpu").name == "fast"


def test_nothing_is_built_unless_asked_for(monkeypatch):
    monkeypatch.setattr(native, "_attempt", lambda: pytest.fail("it was built"))
    dispatch.forget_choices()
    backends(["cpu"])
    params = parameters()
    give_gradients(params, seed=0)
    FusedAdamW(params).step()
