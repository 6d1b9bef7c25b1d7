"""Snapshots of tensors: every change that matters ends them, every other leaves them."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch import nn
from training import MANY_SHAPES, assert_same, give_gradients, is_flat, parameters

from perftool.fused import FusedSGD, snapshot

pytestmark = pytest.mark.skipif(snapshot.learned() is None, reason="this PyTorch keeps its words elsewhere")


def _params():
    params = [nn.Parameter(torch.arange(16.0).view(4, 4)) for _ in range(3)]
    for param in params:
        param.grad = torch.ones_like(param)
    return params


def _swap(params):
    other = nn.Parameter(torch.zeros(4, 4))
    torch.utils.swap_tensors(params[1], other)


def _transpose_in_place(params):
    with torch.no_grad():
        params[1].t_()


def _resize(params):
    params[1].requires_grad_(False).resize_(2, 4)


def _reinterpret(params):
    params[1].requires_grad_(False).data = params[1].data.view(torch.int32)


MOVES = {
    "other storage": lambda params: setattr(params[1], "data", params[1].data.clone()),
    "other offset": lambda params: setattr(params[1], "data", params[1].data.view(-1)[1:]),
    "other strides": lambda params: setattr(params[1], "data", params[1].data.t()),
    "other shape": lambda params: setattr(params[1], "data", params[1].data.view(2, 8)),
    "more dimensions": lambda params: setattr(params[1], "data", params[1].data.view(1, 4, 4)),
    "beyond the inline dimensions": lambda params: setattr(params[1], "data", params[1].data.view(1, 1, 1, 1, 4, 4)),
    "other dtype": _reinterpret,
    "swapped": _swap,
    "transposed in place": _transpose_in_place,
    "resized": _resize,
}
GRADIENT_CHANGES = {
    "replaced": lambda params: setattr(params[1], "grad", torch.ones(4, 4)),
    "dropped": lambda params: setattr(params[1], "grad", None),
    "other storage": lambda params: setattr(params[1].grad, "data", torch.ones(4, 4)),
    "other strides": lambda params: params[1].grad.t_(),
    "of a swapped parameter": _swap,
    "exchanged": lambda params: _exchange_gradients(*params[:2]),
}


def _exchange_gradients(one, other):
    one.grad, other.grad = other.grad, one.grad


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_a_tensor_that_is_moved_ends_its_snapshot(move):
    params = _params()
    taken = snapshot.of_tensors(params)
    assert taken.holds()
    move(params)
    assert not taken.holds()


@pytest.mark.parametrize("change", GRADIENT_CHANGES.values(), ids=GRADIENT_CHANGES)
def test_a_gradient_that_is_changed_ends_its_snapshot(change):
    params = _params()
    taken = snapshot.of_gradients(params)
    assert taken.holds()
    change(params)
    assert not taken.holds()


def test_new_values_views_and_graphs_leave_a_snapshot():
    params = _params()
    tensors, gradients = snapshot.of_tensors(params), snapshot.of_gradients(params)
    (params[0] * params[1]).sum().backward()
    optimizer = torch.optim.SGD(params, 0.1)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    views = [param.detach() for param in params]
    assert tensors.holds()
    assert gradients.holds()
    assert_same(views, params)


def test_a_tensor_put_back_fits_its_snapshot_again():
    params = _params()
    taken, data = snapshot.of_tensors(params), params[1].data
    params[1].data = torch.zeros(2)
    assert not taken.holds()
    params[1].data = data
    assert taken.holds()


@pytest.mark.parametrize(
    "tensor",
    [torch.zeros((1,) * 6), torch.zeros(2, 2).to_sparse(), nn.UninitializedParameter()],
    ids=["6 dimensions", "sparse", "subclass"],
)
def test_tensors_whose_properties_lie_elsewhere_have_no_snapshot(tensor):
    assert snapshot.of_tensors([torch.zeros(1), tensor]) is None


def test_parameters_without_gradients_have_no_snapshot_of_them():
    params = _params()
    params[2].grad = None
    assert snapshot.of_gradients(params) is None


def test_a_snapshot_keeps_what_it_looks_at():
    params = _params()
    gradients = [weakref.ref(param.grad) for param in params]
    taken = snapshot.of_gradients(params)
    del params
    assert all(reference() is not None for reference in gradients)
    assert taken.holds()
    del taken
    assert all(reference() is None for reference in gradients)


@pytest.mark.parametrize("available", [True, False])
def test_steps_are_the_same_with_and_without_snapshots(available, monkeypatch):
    if not available:
        monkeypatch.setattr(snapshot, "learned", lambda: None)
    ours, theirs = parameters(MANY_SHAPES), parameters(MANY_SHAPES)
    fused, plain = FusedSGD(ours, 0.1, 0.9), torch.optim.SGD(theirs, 0.1, 0.9)
    give_gradients(ours, theirs, seed=0)
    for step in range(9):
        for params in (ours, theirs):
            if step == 5:
                params[3].data = params[3].data.clone() * 2.0
            if step == 6:
                params[4].grad = params[4].grad.clone() + 1.0
            if step == 7:
                params[5].grad.mul_(3.0)
        fused.step()
        plain.step()
        assert_same(ours, theirs)
    assert is_flat(fused)


def test_a_process_whose_words_cannot_be_learned_has_no_snapshots(monkeypatch):
    monkeypatch.setattr(snapshot, "HEAD", 10)
    assert snapshot.learned.__wrapped__() is None
    monkeypatch.undo()
    monkeypatch.setattr(snapshot.sys.implementation, "name", "pypy")
    assert snapshot.learned.__wrapped__() is None
