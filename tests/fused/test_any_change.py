"""Compares random sequences of user operations on parameters, gradients and states with torch.optim."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from training import assert_same, give_gradients, parameters

from perftool.fused import FusedAdagrad, FusedSGD

SHAPES = ((4, 4), (3,), (1,), (4, 4)) * 9
BUFFER = "momentum_buffer"


class Side:
    """Parameters, their optimizer, and the tensors that the user refers to."""

    def __init__(self, make):
        self.params = parameters(SHAPES)
        self.optimizer = make(self.params)
        self.held = []
        self.read = self.saved = None

    def state(self, index):
        """Return the momentum of a parameter, or None before its first step."""
        return self.optimizer.state.get(self.params[index], {}).get(BUFFER)


def new_gradients(side, index, values):
    for param, value in zip(side.params, values, strict=True):
        param.grad = value.clone()


def write_gradients(side, index, values):
    for param, value in zip(side.params, values, strict=True):
        if param.grad is None:
            param.grad = torch.zeros_like(param)
        param.grad.copy_(value)


def drop_gradient(side, index, values):
    side.params[index].grad = None


def zero_gradients(side, index, values):
    side.optimizer.zero_grad(set_to_none=False)


def hold_gradient(side, index, values):
    if side.params[index].grad is not None:
        side.held.append(side.params[index].grad)


def move_gradient(side, index, values):
    if side.params[index].grad is not None:
        side.held.append(side.params[index].grad.data)
        side.params[index].grad.data = values[index].clone()


def replace_data(side, index, values):
    side.held.append(side.params[index].data)
    side.params[index].data = values[index].clone()


def turn_data(side, index, values):
    if side.params[index].dim() == 2:
        side.params[index].data = side.params[index].data.t()


def swap_data(side, index, values):
    one, other = side.params[index], side.params[(index + len(SHAPES) // 2) % len(SHAPES)]
    if one.shape == other.shape:
        one.data, other.data = other.data, one.data


def write_data(side, index, values):
    with torch.no_grad():
        side.params[index].copy_(values[index])


def view_data(side, index, values):
    side.held.append(side.params[index].detach())


def forget_what_is_held(side, index, values):
    side.held.clear()


def read_state(side, index, values):
    side.read = side.state(index)


def write_state(side, index, values):
    if side.state(index) is not None:
        side.state(index).copy_(values[index])


def move_state(side, index, values):
    if side.state(index) is not None:
        side.state(index).data = values[index].clone()


def replace_state(side, index, values):
    if side.state(index) is not None:
        side.optimizer.state[side.params[index]] = {BUFFER: values[index].clone()}


def save(side, index, values):
    file = io.BytesIO()
    torch.save([side.optimizer.state_dict(), [param.data for param in side.params]], file)
    side.saved = file.getvalue()


def load(side, index, values):
    if side.saved is not None:
        state, data = torch.load(io.BytesIO(side.saved), weights_only=True)
        side.optimizer.load_state_dict(state)
        with torch.no_grad():
            for param, value in zip(side.params, data, strict=True):
                param.copy_(value)


def copy_all(side, index, values):
    side.params, side.optimizer = copy.deepcopy((side.params, side.optimizer))
    side.held.clear()


def step(side, index, values):
    side.optimizer.step()


CHANGES = [
    *(new_gradients, write_gradients, drop_gradient, zero_gradients, hold_gradient, move_gradient, replace_data),
    *(turn_data, swap_data, write_data, view_data, forget_what_is_held, read_state, write_state, move_state),
    *(replace_state, save, load, copy_all, step),
]


@settings(max_examples=24)
@given(
    changes=st.lists(st.tuples(st.sampled_from(CHANGES), st.integers(0, len(SHAPES) - 1)), max_size=12),
    stepped_first=st.booleans(),
)
def test_any_sequence_of_changes_is_stepped_as_by_torch(changes, stepped_first):
    ours = Side(lambda params: FusedSGD(params, 0.1, 0.9))
    theirs = Side(lambda params: torch.optim.SGD(params, 0.1, 0.9))
    start = [(write_gradients, 0), (step, 0)] * 4 if stepped_first else []
    for turn, (change, index) in enumerate([*start, *changes, (write_gradients, 0), (step, 0), (step, 0)]):
        generator = torch.Generator().manual_seed(turn)
        values = [torch.randn(shape, generator=generator) for shape in SHAPES]
        for side in (ours, theirs):
            change(side, index, values)
    assert_same(ours.params, theirs.params, rtol=1e-4, atol=1e-5)
    assert_same(ours.held, theirs.held, rtol=1e-4, atol=1e-5)
    momenta = [[side.state(index) for index in range(len(SHAPES))] for side in (ours, theirs)]
    assert_same(*momenta, rtol=1e-4, atol=1e-5)


def _other_size(param):
    param.data = torch.ones(7)


def _other_dtype(param):
    param.data = torch.ones(4, dtype=torch.float64)


def _other_dtype_of_equal_bytes(param):
    param.data = torch.ones(2, dtype=torch.float64)


def _turned(param):
    param.data = torch.arange(4.0).view(2, 2).t()


@pytest.mark.parametrize("change", [_other_size, _other_dtype, _other_dtype_of_equal_bytes, _turned])
def test_a_parameter_with_new_memory_is_stepped(change):
    """The step starts without the old states, which do not fit the new memory."""
    params = parameters([(4,)] * 40)
    optimizer = FusedSGD(params, 0.5)
    for _ in range(2):
        give_gradients(params, seed=0)
        optimizer.step()
    params[20].grad = None
    change(params[20])
    before = params[20].detach().clone()
    params[20].grad = torch.arange(float(before.numel()), dtype=before.dtype).view_as(before)
    optimizer.step()
    assert_same([params[20]], [before - 0.5 * params[20].grad])


@pytest.mark.skipif(not hasattr(torch.nn.Parameter, "grad_dtype"), reason="this torch has no gradients of other dtypes")
def test_gradients_wider_than_their_parameters_are_used_in_every_step():
    param = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    param.grad_dtype = torch.float32
    optimizer = FusedAdagrad([param], 0.5)
    for _ in range(3):
        param.grad = torch.full((4,), 2.0)
        optimizer.step()
    assert param.detach().float().tolist() == pytest.approx([1 - 0.5 * (1 + 2**-0.5 + 3**-0.5)] * 4, abs=0.01)
