"""Compares mixture_of_experts with the reference, with a loop in double precision and, if installed, with
transformers.
"""

from __future__ import annotations

import importlib.util
import math

import pytest
import torch
from definitions import mixture
from hypothesis import given, settings
from hypothesis import strategies as st

from perftool.bench.workloads.experts import dense_mixture_of_experts
from perftool.fused import dispatch, mixture_of_experts
from perftool.fused.dispatch import BackendError

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def inputs(tokens=7, hidden=6, ffn=5, experts=4, k=2, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return (torch.randn(*shape, generator=generator, dtype=torch.float64) / shape[-2] ** 0.5).to(dtype)

    weights, table = normal(tokens, experts).softmax(-1).topk(k, dim=-1)
    w1, w2 = ([normal(hidden, ffn) for _ in range(experts)] for _ in range(2))
    return normal(tokens, hidden), table, weights, w1, w2, [normal(ffn, hidden) for _ in range(experts)]


def joined(w1, w2, permuted=False):
    return [torch.cat(pair, dim=0 if permuted else 1) for pair in zip(w1, w2, strict=True)]


def loop(x, table, weights, w1, w2, w3, activation):
    """Return the result computed token by token and slot by slot, with activations from their mathematical
    definitions.
    """
    formulas = {
        "gelu": lambda z: z * 0.5 * (1 + math.erf(z / math.sqrt(2))),
        "relu": lambda z: max(z, 0.0),
        "silu": lambda z: z / (1 + math.exp(-z)),
    }
    out = torch.zeros_like(x)
    for token in range(x.size(0)):
        for slot in range(table.size(1)):
            expert = int(table[token, slot])
            gate, up = x[token] @ w1[expert], x[token] @ w2[expert]
            active = torch.tensor([formulas[activation](value) for value in gate.tolist()], dtype=x.dtype)
            out[token] += weights[token, slot] * ((active * up) @ w3[expert])
    return out


def assert_close(found, expected, dtype):
    scale = max(1.0, expected.abs().max().item())
    assert (found.double() - expected.double()).abs().max().item() <= TOLERANCE[dtype] * scale


@pytest.mark.parametrize("activation", ["gelu", "relu", "silu"])
def test_output_is_the_definition_evaluated_in_a_loop(activation):
    x, table, weights, w1, w2, w3 = inputs()
    found = mixture_of_experts(x, table, weights, w1, w2, w3, False, activation, 0, 3)
    assert_close(found, loop(x, table, weights, w1, w2, w3, activation), torch.float64)


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("permuted", [False, True])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_both_forms_match_the_mixture(dtype, permuted, fused, grad):
    x, table, weights, w1, w2, w3 = inputs(33, 8, 12, 4, 3, dtype)
    exact = mixture(x.double(), table, weights.double(), *([w.double() for w in part] for part in (w1, w2, w3)), "silu")
    x.requires_grad_(grad)
    if permuted:
        w1, w2, w3 = ([weight.t().contiguous() for weight in part] for part in (w1, w2, w3))
    first = (joined(w1, w2, permuted),) if fused else (w1, w2)
    found = mixture_of_experts(x, table, weights, *first, w3, permuted, "silu", 0, 3)
    assert found.dtype == dtype
    assert_close(found, exact, dtype)


def test_gradients_match_the_reference_for_every_input():
    def leaves():
        x, table, weights, *experts = inputs()
        return x, table, weights, experts

    results = []
    for function in (
        lambda *args: mixture_of_experts(*args, False, "gelu", 0, 3),
        lambda *args: mixture(*args, "gelu"),
        lambda *args: dense_mixture_of_experts(*args),
    ):
        x, table, weights, experts = leaves()
        flat = [x, weights, *(weight for part in experts for weight in part)]
        for tensor in flat:
            tensor.requires_grad_()
        out = function(x, table, weights, *experts)
        results.append(torch.autograd.grad(out.square().sum(), flat, allow_unused=True))
    for ours, plain, dense in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain)
        torch.testing.assert_close(ours, dense)


def test_gradients_agree_with_finite_differences():
    x, table, weights, w1, w2, w3 = inputs(4, 3, 2, 3, 2)

    def run(x, weights, first_gate):
        return mixture_of_experts(x, table, weights, [first_gate, *w1[1:]], w2, w3, False, "silu", 0, 2)

    leaves = (x.requires_grad_(), weights.requires_grad_(), w1[0].requires_grad_())
    assert torch.autograd.gradcheck(run, leaves)


@settings(max_examples=20)
@given(
    tokens=st.integers(0, 20),
    hidden=st.integers(1, 9),
    ffn=st.integers(1, 9),
    experts=st.integers(1, 6),
    data=st.data(),
)
def test_any_shape_and_any_split_over_cards_adds_up_to_the_mixture(tokens, hidden, ffn, experts, data):
    k = data.draw(st.integers(1, experts))
    border = data.draw(st.integers(1, experts))
    x, table, weights, w1, w2, w3 = inputs(tokens, hidden, ffn, experts, k)
    expected = mixture(x, table, weights, w1, w2, w3, "gelu")
    total = torch.zeros_like(x)
    for first, last in ((0, border - 1), (border, experts - 1)):
        if first <= last:
            mine = [part[first : last + 1] for part in (w1, w2, w3)]
            local = mixture_of_experts(x, table, weights, *mine, False, "gelu", first, last)
            whole = mixture_of_experts(x, table, weights, w1, w2, w3, False, "gelu", first, last)
            assert torch.equal(local, whole)
            total += local
    torch.testing.assert_close(total, expected)


def test_a_router_may_choose_the_same_expert_twice():
    x, _, weights, w1, w2, w3 = inputs()
    table = torch.ones(7, 2, dtype=torch.int32)
    found = mixture_of_experts(x, table, weights, w1, w2, w3, False, "relu", 0, 3)
    torch.testing.assert_close(found, loop(x, table, weights, w1, w2, w3, "relu"))


def test_nan_and_infinity_stay_with_the_tokens_that_meet_them():
    x, _, _, w1, w2, w3 = inputs(tokens=4, experts=3)
    table, weights = torch.tensor([[0], [1], [2], [0]]), torch.ones(4, 1, dtype=torch.float64)
    x[1, 0] = float("nan")
    w3[2][0, 0] = float("inf")
    found = mixture_of_experts(x, table, weights, w1, w2, w3, False, "silu", 0, 2)
    assert found.isfinite().all(1).tolist() == [True, False, False, True]
    assert found[1].isnan().all()


@pytest.mark.parametrize("fused", [False, True])
def test_measurement_returns_the_largest_activation_of_each_expert(fused):
    x, _, _, w1, w2, w3 = inputs(tokens=4, experts=3, dtype=torch.float32)
    table, weights = torch.tensor([[0], [0], [2], [2]]), torch.ones(4, 1)
    first = (joined(w1, w2),) if fused else (w1, w2)
    out, largest = mixture_of_experts(x, table, weights, *first, w3, False, "relu", 0, 2, True)
    active = [(x[rows] @ w1[e]).relu() * (x[rows] @ w2[e]) for e, rows in ((0, [0, 1]), (2, [2, 3]))]
    assert largest.dtype == torch.float32
    torch.testing.assert_close(largest, torch.stack([active[0].max(), torch.tensor(0.0), active[1].max()]))
    torch.testing.assert_close(out, mixture(x, table, weights, w1, w2, w3, "relu"))


@pytest.mark.parametrize("fused", [False, True])
def test_arguments_may_be_named(fused):
    x, table, weights, w1, w2, w3 = inputs()
    first = {"w12": joined(w1, w2)} if fused else {"w1": w1, "w2": w2}
    found = mixture_of_experts(
        hidden_states=x, expert_routing_table=table, router_weights=weights, **first, w3=w3,
        permuted_weights=False, activation="silu", experts_min=0, experts_max=3,
    )  # fmt: skip
    torch.testing.assert_close(found, mixture(x, table, weights, w1, w2, w3, "silu"))


@pytest.mark.parametrize("positional", range(11))
def test_any_number_of_arguments_may_be_named(positional):
    x, table, weights, w1, w2, w3 = inputs()
    tail = {"permuted_weights": False, "activation": "gelu", "experts_min": 0, "experts_max": 3}
    head = {"hidden_states": x, "expert_routing_table": table, "router_weights": weights}
    expected = mixture(x, table, weights, w1, w2, w3, "gelu")
    for form in ({"w1": w1, "w2": w2}, {"w12": joined(w1, w2)}):
        arguments = {**head, **form, "w3": w3, **tail}
        named = dict(list(arguments.items())[positional:])
        torch.testing.assert_close(mixture_of_experts(*list(arguments.values())[:positional], **named), expected)


def test_an_unknown_activation_is_refused_with_the_original_text():
    text = 'Activation "tanh" not found among MoeActivationMode_t enum values.'
    with pytest.raises(RuntimeError, match=text):
        mixture_of_experts(*inputs(), False, "tanh", 0, 3)


def spoil(position, change):
    arguments = [*inputs(), False, "gelu", 0, 3]
    arguments[position] = change(arguments[position])
    return arguments


@pytest.mark.parametrize(
    ("position", "change", "text"),
    [
        (0, lambda x: x[None], r"\[tokens, hidden\]"),
        (0, lambda x: x.int(), "float32, float16 or bfloat16"),
        (1, lambda table: table[:3], r"\[tokens, experts per token\]"),
        (1, lambda table: table.double(), "integers"),
        (2, lambda weights: weights[:, :1], "shape of expert_routing_table"),
        (3, lambda w1: w1[:2], "w1 holds 2 experts"),
        (4, lambda w2: [weight.t() for weight in w2], "every w2 must be"),
        (5, lambda w3: [weight.float() for weight in w3], "every w3 must have the dtype"),
        (9, lambda last: -1, "0 <= min <= max"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(position, change, text):
    with pytest.raises(ValueError, match=text):
        mixture_of_experts(*spoil(position, change))


def test_the_backend_can_be_chosen_and_an_impossible_choice_raises(monkeypatch):
    arguments = (*inputs(), False, "gelu", 0, 3)
    expected = mixture_of_experts(*arguments)
    monkeypatch.setattr(dispatch, "wanted", "reference")
    torch.testing.assert_close(mixture_of_experts(*arguments), expected)
    measured, largest = mixture_of_experts(*arguments, True)
    torch.testing.assert_close(measured, expected)
    assert largest.shape == (4,)
    monkeypatch.setattr(dispatch, "wanted", "habana")
    with pytest.raises(BackendError, match="habana"):
        mixture_of_experts(*arguments)


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
def test_output_matches_the_mixtral_block_of_transformers():
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralExperts

    config = MixtralConfig(hidden_size=8, intermediate_size=6, num_local_experts=4, num_experts_per_tok=2)
    block = MixtralExperts(config).double()
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x, table, weights, *_ = inputs(9, 8, 6, 4, 2)
    expected = block(x, table, weights)
    found = mixture_of_experts(x, table, weights, [*block.gate_up_proj], [*block.down_proj], True, "silu", 0, 3)
    torch.testing.assert_close(found, expected)


def test_both_forms_have_names_and_defaults():
    import inspect

    assert list(inspect.signature(mixture_of_experts).parameters)[3:7] == ["w1", "w2", "w3", "permuted_weights"]
    x, table, weights = torch.randn(3, 4), torch.zeros(3, 1, dtype=torch.int64), torch.ones(3, 1)
    with pytest.raises(TypeError, match="missing a required argument: 'experts_max'"):
        mixture_of_experts(x, table, weights, [x], [x], [x], False, "gelu", 0)
    with pytest.raises(TypeError, match="an unexpected keyword argument 'experts'"):
        mixture_of_experts(x, table, weights, [x], [x], False, "gelu", 0, 0, experts=1)


@pytest.mark.parametrize("fused", [False, True])
def test_torch_compile_changes_no_result(fused):
    x, table, weights, w1, w2, w3 = inputs()
    first = (joined(w1, w2),) if fused else (w1, w2)

    def run(x):
        return mixture_of_experts(x, table, weights, *first, w3, False, "silu", 0, 3).square().sum()

    grads = []
    for function in (run, torch.compile(run, backend="aot_eager")):
        leaf = x.clone().requires_grad_()
        function(leaf).backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(*grads)
