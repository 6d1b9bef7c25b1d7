"""Parameters and gradients that users view, replace, share and move, beside torch.optim doing the same."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn
from training import MANY_SHAPES, assert_same, give_gradients, is_flat, parameters

from perftool.fused import FusedAdamW, FusedSGD
from perftool.fused.flat import FlatTensors, Layout, can_all_move, can_move, find, is_dense, move
from perftool.fused.norms import buffer_norm
from perftool.fused.unchanged import Memory


class Pair:
    """The same parameters under a fused optimizer and under torch.optim."""

    def __init__(self, flat=None, shapes=MANY_SHAPES):
        self.ours, self.theirs = parameters(shapes), parameters(shapes)
        self.fused = FusedSGD(self.ours, 0.1, 0.9, 0.01, flat=flat)
        self.plain = torch.optim.SGD(self.theirs, 0.1, 0.9, weight_decay=0.01, foreach=False)
        self.steps = 0

    def step(self, times=2, new_gradients=True):
        """Step both, with new gradient tensors or with new values in the present ones."""
        for _ in range(times):
            self.steps += 1
            if new_gradients:
                give_gradients(self.ours, self.theirs, seed=self.steps)
            else:
                give_gradients(self.theirs, seed=self.steps)
                for param, other in zip(self.ours, self.theirs, strict=True):
                    param.grad.copy_(other.grad)
            self.fused.step()
            self.plain.step()

    def both(self, change):
        """Do the same to both sets."""
        change(self.ours)
        change(self.theirs)

    def check(self):
        """Both sets have the same values."""
        assert_same(self.ours, self.theirs)


@pytest.fixture(params=[None, False])
def pair(request):
    """Two sets that have been stepped twice, flat and as lists."""
    pair = Pair(request.param)
    pair.step()
    assert is_flat(pair.fused) is (request.param is None)
    return pair


def _replace_all(params):
    for param in params:
        param.data = param.data.clone() + 1.0


def _replace_one(params):
    params[3].data = params[3].data.clone() * 2.0


def _swap_two(params):
    params[0].data, params[5].data = params[5].data, params[0].data


def _write_through_data(params):
    for param in params:
        param.data.mul_(0.5)


@pytest.mark.parametrize("change", [_replace_all, _replace_one, _swap_two, _write_through_data])
def test_changed_data_is_stepped(pair, change):
    pair.both(change)
    pair.step()
    pair.check()


def test_a_transposed_view_of_the_same_memory_is_noticed():
    pair = Pair(shapes=((4, 4),) * 40)
    pair.step()
    assert is_flat(pair.fused)

    def transpose(params):
        for param in params:
            param.data = param.data.t()

    pair.both(transpose)
    pair.step()
    pair.check()


def _in_place_pair(shapes=((4, 4),) * 40):
    """Gradients live in the flat buffer, and stay there when new values are written to them."""
    pair = Pair(shapes=shapes)
    pair.step()
    pair.step(4, new_gradients=False)
    assert pair.fused._current.buckets[0]._exposed
    return pair


def _transpose_one(params):
    params[3].data = params[3].data.t()


def _step_over_rows(params):
    params[3].data = torch.arange(32.0).view(4, 8)[:, ::2]


def _tie_two(params):
    params[3].data = params[5].data


def _transpose_gradient(params):
    params[3].grad = params[3].grad.t()


def _move_gradient(params):
    held = params[3].grad.data
    params[3].grad.data = held + 1.0


def _swap_gradients(params):
    params[3].grad, params[5].grad = params[5].grad, params[3].grad


@pytest.mark.parametrize(
    "change",
    [
        *(_replace_all, _replace_one, _swap_two, _transpose_one, _step_over_rows, _tie_two),
        *(_transpose_gradient, _move_gradient, _swap_gradients),
    ],
)
def test_changes_are_noticed_while_gradients_stay_in_the_buffer(change):
    pair = _in_place_pair()
    pair.both(change)
    pair.fused.step()
    pair.plain.step()
    pair.check()
    pair.step(2, new_gradients=False)
    pair.check()


def test_a_parameter_that_loses_rows_is_not_stepped_where_they_were():
    pair = _in_place_pair()
    rows = pair.ours[3].data
    pair.both(lambda params: setattr(params[3], "data", params[3].data[:2]))
    kept = rows.clone()
    for optimizer in (pair.fused, pair.plain):
        with pytest.raises(RuntimeError, match="size"):
            optimizer.step()
    assert_same([rows[2:]], [kept[2:]])


def test_a_state_that_is_moved_is_the_one_that_counts(pair):
    """How states are brought back from where they were kept between two phases."""
    for optimizer in (pair.fused, pair.plain):
        for state in optimizer.state.values():
            state["momentum_buffer"].data = state["momentum_buffer"].data * 2.0
    pair.step()
    pair.check()
    ours, theirs = (each.state[params[3]] for each, params in ((pair.fused, pair.ours), (pair.plain, pair.theirs)))
    assert_same(ours.values(), theirs.values())


def test_memory_is_told_by_place_size_and_order():
    tensors = [torch.zeros(4, 4), torch.zeros(0), torch.zeros(())]
    memory = Memory(tensors)
    square, *others = tensors
    assert memory.holds(tensors)
    assert memory.holds([square.view(16).detach(), *others])
    assert not memory.holds([square.t(), *others])
    assert not memory.holds([square[:2], *others])
    assert not memory.holds([square.clone(), *others])
    assert memory.holds(others, slice(1, 3))
    turned = Memory([square.t()])
    assert turned.holds([square.t()])
    assert not turned.holds([square])


def test_values_saved_by_reference_and_put_back(pair):
    """How averaged weights are swapped in for an evaluation."""
    saved = [[p.data for p in params] for params in (pair.ours, pair.theirs)]
    for params in (pair.ours, pair.theirs):
        for param in params:
            param.data = torch.zeros_like(param)
    for params, values in zip((pair.ours, pair.theirs), saved, strict=True):
        for param, value in zip(params, values, strict=True):
            param.data = value
    pair.step()
    pair.check()
    for param, value in zip(pair.ours, saved[0], strict=True):
        assert param.data_ptr() == value.data_ptr()
        assert_same([value], [param])


def test_stepping_on_swapped_in_values_leaves_the_saved_ones(pair):
    saved = [p.data for p in pair.ours]
    copies = [value.clone() for value in saved]
    pair.both(_replace_all)
    pair.step()
    pair.check()
    assert_same(saved, copies)


def test_views_taken_before_the_first_step_keep_seeing_the_parameter():
    ours = parameters(MANY_SHAPES)
    views = [param.detach() for param in ours]
    arrays = ours[1].detach().numpy()
    fused = FusedSGD(ours, 0.1, flat=True)
    give_gradients(ours, seed=0)
    fused.step()
    assert not is_flat(fused)
    assert_same(views, ours)
    assert arrays.tolist() == ours[1].tolist()


def test_views_taken_after_the_first_step_keep_seeing_the_parameter(pair):
    views = [param.detach() for param in pair.ours]
    pair.step()
    assert_same(views, pair.ours)
    pair.check()


def test_a_view_that_is_gone_no_longer_prevents_flattening():
    pair = Pair()
    views = [param.detach() for param in pair.ours]
    pair.step(1)
    assert not is_flat(pair.fused)
    del views
    pair.step(2)
    assert is_flat(pair.fused)
    pair.check()


def test_two_parameters_of_one_memory():
    values = [torch.arange(6.0), torch.arange(6.0)]
    ours, theirs = ([nn.Parameter(v), nn.Parameter(v), *parameters(MANY_SHAPES)] for v in values)
    fused, plain = FusedSGD(ours, 0.1), torch.optim.SGD(theirs, 0.1)
    for step in range(3):
        give_gradients(ours, theirs, seed=step)
        fused.step()
        plain.step()
    assert ours[0].data_ptr() == ours[1].data_ptr()
    assert_same(ours, theirs)


def test_a_parameter_of_two_modules_stays_shared():
    def build():
        torch.manual_seed(0)
        model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(20)])
        model[7].weight = model[3].weight
        return model

    ours, theirs = build(), build()
    fused = FusedAdamW(ours.parameters(), 0.01, eps=0.0)
    plain = torch.optim.AdamW(theirs.parameters(), 0.01, eps=0.0, weight_decay=0.0)
    for _ in range(3):
        for model, optimizer in ((ours, fused), (theirs, plain)):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    assert is_flat(fused)
    assert ours[7].weight is ours[3].weight
    assert_same(ours.parameters(), theirs.parameters(), rtol=1e-4)


@pytest.mark.parametrize("persistent", [True, False])
def test_gradients_that_somebody_holds_stay_where_they_are(persistent):
    pair = Pair()
    pair.step()
    held = [param.grad for param in pair.ours]
    for turn in range(4):
        for grad, other in zip(held, pair.theirs, strict=True):
            grad.fill_(turn + 1.0)
            other.grad = torch.full_like(other, turn + 1.0)
        if not persistent:
            for param in pair.ours:
                param.grad = param.grad.detach()
        pair.fused.step()
        pair.plain.step()
    pair.check()


def test_gradients_that_nobody_holds_move_into_the_flat_buffer():
    pair = Pair()
    pair.step()
    pair.step(6, new_gradients=False)
    (bucket,) = pair.fused._current.buckets
    assert bucket.gradients is not None
    assert all(p.grad is view for p, view in zip(pair.ours, bucket.gradients.views, strict=True))
    pair.check()


def _exposed_pair():
    pair = Pair()
    pair.step()
    pair.step(6, new_gradients=False)
    assert pair.fused._current.buckets[0]._exposed
    return pair


def _replace_gradient(params):
    params[2].grad = params[2].grad.clone() + 1.0


def _replace_gradient_data(params):
    params[2].grad.data = params[2].grad.data * 3.0


def _drop_gradient(params):
    params[2].grad = None


@pytest.mark.parametrize("change", [_replace_gradient, _replace_gradient_data, _drop_gradient])
def test_changed_gradients_are_used(change):
    pair = _exposed_pair()
    pair.both(change)
    pair.fused.step()
    pair.plain.step()
    pair.check()
    pair.step()
    pair.check()


def test_gradients_kept_from_an_earlier_step_are_not_overwritten():
    pair = _exposed_pair()
    kept = [param.grad for param in pair.ours]
    copies = [grad.clone() for grad in kept]
    pair.step(1)
    assert_same(kept, copies)
    pair.check()


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad(set_to_none):
    pair = _exposed_pair()
    pair.fused.zero_grad(set_to_none)
    for param in pair.ours:
        assert param.grad is None if set_to_none else not param.grad.any()
    pair.plain.zero_grad(set_to_none)
    pair.fused.step()
    pair.plain.step()
    pair.check()


def test_zero_grad_reaches_a_group_added_since_the_last_step():
    pair = _exposed_pair()
    (late,) = parameters([(3,)])
    give_gradients([late], seed=0)
    pair.fused.add_param_group({"params": [late]})
    pair.fused.zero_grad(set_to_none=False)
    assert not any(param.grad.any() for param in (*pair.ours, late))


def test_frozen_and_unfrozen_parameters(pair):
    def freeze(params):
        for param in params[:5]:
            param.requires_grad_(False)
            param.grad = None

    def unfreeze(params):
        for param in params[:5]:
            param.requires_grad_(True)

    pair.both(freeze)
    for _ in range(2):
        pair.steps += 1
        give_gradients(pair.ours[5:], pair.theirs[5:], seed=pair.steps)
        pair.fused.step()
        pair.plain.step()
    pair.check()
    pair.both(unfreeze)
    pair.step()
    pair.check()


def test_late_gradients_have_no_state_before():
    ours, theirs = parameters(MANY_SHAPES), parameters(MANY_SHAPES)
    fused, plain = FusedSGD(ours, 0.1, 0.9), torch.optim.SGD(theirs, 0.1, 0.9)
    for first in (20, 20, 0, 0):
        give_gradients(ours[first:], theirs[first:], seed=first)
        fused.step()
        plain.step()
        assert len(fused.state) == len(ours) - first
    assert_same(ours, theirs)


@pytest.mark.parametrize("flat", [None, False])
@pytest.mark.parametrize("move", [lambda m: m.double(), lambda m: m.to(torch.bfloat16), lambda m: m.double().float()])
def test_a_model_that_changes_its_dtype(flat, move):
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(3, 3) for _ in range(20)])
    other = copy.deepcopy(model)
    fused = FusedAdamW(model.parameters(), 0.01, flat=flat)
    untouched = FusedAdamW(other.parameters(), 0.01, flat=False)
    for turn in range(4):
        if turn == 2:
            move(model)
        give_gradients(model.parameters(), seed=turn)
        give_gradients(other.parameters(), seed=turn)
        fused.step()
        untouched.step()
    assert_same(model.parameters(), other.parameters(), rtol=2e-2, atol=2e-2)
    assert {state["exp_avg"].dtype for state in fused.state.values()} == {next(model.parameters()).dtype}


def test_load_state_dict_of_the_model(pair):
    values = [torch.full_like(p, 0.5) for p in pair.ours]

    def load(params):
        with torch.no_grad():
            for param, value in zip(params, values, strict=True):
                param.copy_(value)

    pair.both(load)
    pair.step()
    pair.check()


def test_a_deep_copy_of_the_model_is_independent(pair):
    copies = copy.deepcopy(pair.ours)
    before = [param.detach().clone() for param in copies]
    pair.step()
    assert_same(copies, before)
    assert all(param.untyped_storage().nbytes() == param.nbytes for param in copies)
    pair.check()


def test_a_deep_copy_of_model_and_optimizer_trains_on(pair):
    pair.ours, pair.fused = copy.deepcopy((pair.ours, pair.fused))
    pair.step()
    pair.check()


def test_a_pickled_optimizer_trains_on(pair):
    flat = pair.fused.flat
    pair.ours, pair.fused = pickle.loads(pickle.dumps((pair.ours, pair.fused)))
    assert pair.fused.flat is flat
    pair.step()
    pair.check()


@pytest.mark.parametrize("reset", ["entry", "value", "all"])
def test_state_that_the_user_resets(pair, reset):
    def forget(optimizer, params):
        if reset == "entry":
            optimizer.state[params[3]] = {}
        elif reset == "value":
            optimizer.state[params[3]]["momentum_buffer"] = torch.zeros_like(params[3])
        else:
            optimizer.state.clear()

    forget(pair.fused, pair.ours)
    forget(pair.plain, pair.theirs)
    pair.step()
    pair.check()


def test_parameters_exchanged_in_their_group(pair):
    """How points are added to and removed from a scene while it is trained."""
    for optimizer, params in ((pair.fused, pair.ours), (pair.plain, pair.theirs)):
        state = optimizer.state.pop(params[1])
        state["momentum_buffer"] = torch.cat([state["momentum_buffer"], torch.zeros(2, 5)])
        grown = nn.Parameter(torch.cat([params[1].detach(), torch.ones(2, 5)]))
        optimizer.param_groups[0]["params"][1] = params[1] = grown
        optimizer.state[grown] = state
    pair.step()
    pair.check()


def test_autograd_notices_that_a_flat_parameter_has_changed():
    params = parameters(MANY_SHAPES)
    fused = FusedSGD(params, 0.1)
    give_gradients(params, seed=0)
    fused.step()
    loss = (params[0] * params[0]).sum()
    fused.step()
    assert is_flat(fused)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_parameters_that_are_replaced_before_every_step_end_up_in_lists():
    pair = Pair()
    for _ in range(12):
        pair.both(_replace_all)
        pair.step(1)
    assert not is_flat(pair.fused)
    pair.check()


def test_a_second_optimizer_of_the_same_parameters(pair):
    other, plain = FusedSGD(pair.ours, 0.2), torch.optim.SGD(pair.theirs, 0.2)
    for _ in range(3):
        pair.step(1)
        other.step()
        plain.step()
    pair.check()


def test_a_layout_pads_every_tensor_to_a_row_and_keeps_its_order_of_dimensions():
    tensors = [torch.ones(3), torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last), torch.ones(65)]
    layout = Layout.of(tensors)
    flat = FlatTensors.copy_of(tensors)
    assert layout.offsets == (0, 64, 192)
    assert layout.size == 320
    assert_same(flat.views, tensors)
    assert flat.views[1].stride() == tensors[1].stride()
    assert_same([layout.norms(flat.buffer)], [torch.stack([t.norm() for t in tensors])])
    assert find(flat.views) is flat
    assert find(flat.views[:2]) is None


def test_norms_recover_from_nan_in_the_padding():
    tensors = [torch.ones(3), torch.ones(4)]
    flat = FlatTensors.copy_of(tensors)
    flat.buffer[10] = torch.nan
    assert flat.layout.norms(flat.buffer).tolist() == [pytest.approx(3**0.5), 2.0]


def test_the_norm_of_a_large_buffer_is_exact_and_recovers_from_nan_in_the_padding():
    values = [torch.rand(1_000_001, generator=torch.Generator().manual_seed(0)), torch.ones(3)]
    flat = FlatTensors.copy_of(values)
    expected = pytest.approx(torch.cat(values).double().norm().item(), rel=1e-6)
    assert buffer_norm(flat.buffer, flat.layout).item() == expected
    flat.buffer[-1] = torch.nan
    assert buffer_norm(flat.buffer, flat.layout).item() == expected
    assert not flat.buffer[-1]


def test_tensors_that_share_a_place_cannot_move_apart():
    tensors = [torch.zeros(4), torch.ones(4), torch.ones(2)]
    flat = FlatTensors.copy_of(tensors)
    move(tensors, flat)
    assert can_all_move(tensors)
    tensors[2].data = flat.views[1][2:].detach()
    assert not can_all_move(tensors)
    tensors[2].data = flat.views[1].detach()
    assert not can_all_move(tensors)
    tensors[2].data = flat.views[2].detach()
    assert can_all_move(tensors)


def test_what_can_move():
    alone = torch.zeros(4)
    assert can_move(alone)
    assert not can_move(torch.zeros(4)[:2])
    assert not can_move(torch.zeros(0))
    assert not can_move(torch.zeros(4).expand(2, 4))
    assert not can_move(torch.zeros(4).share_memory_())
    view = alone.view(2, 2)
    assert not can_move(alone)
    del view
    assert can_move(alone)


@pytest.mark.parametrize(
    ("tensor", "dense"),
    [
        (torch.zeros(2, 3), True),
        (torch.zeros(2, 3).t(), True),
        (torch.zeros(2, 3)[:, :2], False),
        (torch.zeros(1).expand(3), False),
        (torch.zeros(()), True),
    ],
)
def test_is_dense(tensor, dense):
    assert is_dense(tensor) is dense
