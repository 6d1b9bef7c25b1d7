"""The state of parameters in a flat buffer: dictionaries whose tensors enter when somebody asks for them."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from training import MANY_SHAPES, assert_same, give_gradients, is_flat, parameters

from perftool.fused import FusedAdamW, FusedSGD
from perftool.fused.entry import Entry, Withheld

NAME = "momentum_buffer"


class Pair:
    """The same parameters under a flat fused optimizer and under torch.optim, stepped twice."""

    def __init__(self):
        self.ours, self.theirs = parameters(MANY_SHAPES), parameters(MANY_SHAPES)
        self.fused = FusedSGD(self.ours, 0.1, 0.9)
        self.plain = torch.optim.SGD(self.theirs, 0.1, 0.9)
        self.steps = 0
        self.step(4)
        assert is_flat(self.fused)
        assert self.withheld()

    def withheld(self):
        """Whether no state has been handed out."""
        (bucket,) = self.fused._current.buckets
        return bucket._withheld is not None and bucket._withheld.intact

    def step(self, times=1):
        """Step both with new values in the present gradients."""
        for _ in range(times):
            self.steps += 1
            give_gradients(self.theirs, seed=self.steps)
            for param, other in zip(self.ours, self.theirs, strict=True):
                if param.grad is None:
                    param.grad = torch.zeros_like(param)
                param.grad.copy_(other.grad)
            self.fused.step()
            self.plain.step()

    def check(self):
        """Both have the same values and states."""
        assert_same(self.ours, self.theirs)
        states = [[each.state[p][NAME] for p in params] for each, params in self.sides()]
        assert_same(*states)

    def sides(self):
        """Each optimizer with its parameters."""
        return (self.fused, self.ours), (self.plain, self.theirs)


def _replace(entry):
    entry[NAME] = torch.ones_like(entry[NAME])


def _update(entry):
    entry.update({NAME: torch.ones_like(entry.get(NAME))})


def _merge(entry):
    entry |= {NAME: torch.ones_like(dict(entry)[NAME])}


def _move(entry):
    entry[NAME].data = torch.ones_like(entry[NAME])


def _set(entry):
    (state,) = entry.values()
    state.set_(torch.ones_like(state))


def _write(entry):
    entry[NAME].fill_(1.0)


def _write_to_a_merged_copy(entry):
    {**entry}[NAME].fill_(1.0)


def _write_to_items(entry):
    for _, state in entry.items():
        state.fill_(1.0)


@pytest.mark.parametrize(
    "change", [_replace, _update, _merge, _move, _set, _write, _write_to_a_merged_copy, _write_to_items]
)
@pytest.mark.parametrize("seen_before", [False, True])
def test_whatever_is_done_to_a_state_counts(change, seen_before):
    pair = Pair()
    for optimizer, params in pair.sides():
        held = optimizer.state[params[3]]
        if seen_before:
            assert held[NAME].shape == params[3].shape
            optimizer.step()
        change(held)
    pair.step(2)
    pair.check()


def test_a_tensor_that_was_handed_out_stays_the_one_that_counts():
    pair = Pair()
    held = [optimizer.state[params[3]][NAME] for optimizer, params in pair.sides()]
    _replace_parameter_data(pair.ours)
    _replace_parameter_data(pair.theirs)
    pair.step(2)
    assert is_flat(pair.fused)
    assert not pair.withheld()
    for state in held:
        state.data = torch.zeros_like(state)
    pair.step(2)
    pair.check()


def _replace_parameter_data(params):
    params[7].data = params[7].data.clone()


def test_a_new_plan_hands_out_nothing():
    pair = Pair()
    _replace_parameter_data(pair.ours)
    _replace_parameter_data(pair.theirs)
    pair.step(2)
    assert pair.withheld()
    pair.check()
    pair.step(2)
    pair.check()


def test_a_checkpoint_hands_out_plain_dictionaries_and_no_states():
    pair = Pair()
    packed = pair.fused.state_dict()
    assert {type(entry) for entry in packed["state"].values()} == {dict}
    assert pair.withheld()
    file = io.BytesIO()
    torch.save(packed, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    expected = [entry[NAME] for entry in pair.plain.state_dict()["state"].values()]
    assert_same([entry[NAME] for entry in loaded["state"].values()], expected)
    pair.step()
    pair.fused.load_state_dict(loaded)
    pair.plain.load_state_dict({**pair.plain.state_dict(), "state": loaded["state"]})
    pair.step(2)
    pair.check()


def test_writing_to_a_checkpoint_writes_to_the_states():
    pair = Pair()
    for optimizer, _ in pair.sides():
        optimizer.state_dict()["state"][3][NAME].fill_(1.0)
    pair.step()
    pair.check()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_copies_have_the_states_and_are_independent(duplicate):
    pair = Pair()
    pair.ours, pair.fused = duplicate((pair.ours, pair.fused))
    pair.step(2)
    pair.check()


def test_two_optimizers_that_share_entries():
    pair = Pair()
    other, params = FusedSGD(parameters(MANY_SHAPES), 0.1, 0.9), None
    params = other.param_groups[0]["params"]
    for mine, theirs in zip(params, pair.ours, strict=True):
        other.state[mine] = pair.fused.state[theirs]
    expected = [pair.plain.state[param][NAME].clone() for param in pair.theirs]
    for turn in range(3):
        grads = give_gradients(params, seed=turn)
        other.step()
        expected = [0.9 * state + grad for state, grad in zip(expected, grads, strict=True)]
    assert_same([other.state[param][NAME] for param in params], expected)
    assert_same([pair.fused.state[param][NAME] for param in pair.ours], expected)


def test_moments_that_users_read_at_every_step():
    ours, theirs = parameters(MANY_SHAPES), parameters(MANY_SHAPES)
    fused = FusedAdamW(ours, 0.01, eps=0.0)
    plain = torch.optim.AdamW(theirs, 0.01, eps=0.0, weight_decay=0.0)
    for step in range(4):
        give_gradients(ours, theirs, seed=step)
        fused.step()
        plain.step()
        for name in ("exp_avg", "exp_avg_sq"):
            assert_same([fused.state[p][name] for p in ours], [plain.state[p][name] for p in theirs])
    assert_same(ours, theirs, rtol=1e-4)


def _entry():
    withheld = Withheld({"a": [torch.zeros(1), torch.ones(2)]})
    entry = Entry(b=2)
    entry.withhold(withheld, 1)
    return entry, withheld


@pytest.mark.parametrize(
    "use",
    [
        dict,
        copy.copy,
        lambda e: {**e},
        lambda e: e.copy(),
        lambda e: e | {},
        lambda e: {} | e,
        lambda e: (lambda **items: items)(**e),
        lambda e: dict(e.items()),
        lambda e: {name: e[name] for name in e},
        lambda e: dict(zip(e.keys(), e.values(), strict=True)),
        lambda e: {"b": e.pop("b"), "a": e.pop("a")},
        lambda e: dict(e.popitem() for _ in range(len(e))),
        lambda e: {name: e.setdefault(name) for name in reversed(e)},
    ],
)
def test_every_use_of_an_entry_hands_its_tensors_out(use):
    entry, withheld = _entry()
    result = use(entry)
    assert not withheld.intact
    assert set(result) == {"a", "b"}
    assert result["a"] is withheld.states["a"][1]
    assert result["b"] == 2


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (len, 2),
        (bool, True),
        (lambda e: "a" in e, True),
        (lambda e: e == {"b": 2}, False),
        (lambda e: e != {"b": 2}, True),
        (repr, "{'b': 2, 'a': tensor([1., 1.])}"),
        (lambda e: e.clear() or len(e), 0),
    ],
)
def test_what_an_entry_says_of_itself_includes_its_tensors(ask, answer):
    assert ask(_entry()[0]) == answer


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each)), Entry.plain])
def test_duplicates_are_plain_dictionaries_and_hand_nothing_out(duplicate):
    entry, withheld = _entry()
    result = duplicate(entry)
    assert type(result) is dict
    assert result["b"] == 2
    assert result["a"].tolist() == [1.0, 1.0]
    assert withheld.intact
