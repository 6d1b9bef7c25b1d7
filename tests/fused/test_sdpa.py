"""Compares FusedSDPA with the reference, PyTorch's math backend and a loop in double precision."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from perftool.fused import FusedSDPA, enable_recompute_sdp, recompute_sdp_enabled, sdp_kernel
from perftool.fused.attention import formula as attention

TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}


def tensors(batch, heads, kv_heads, queries, keys, size, dtype=torch.float64, grad=True, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((batch, heads, queries, size), (batch, kv_heads, keys, size), (batch, kv_heads, keys, size))
    made = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]
    return [tensor.requires_grad_(grad) for tensor in made]


def loop_attention(q, k, v, causal):
    """Compute attention one query at a time with Python floats."""
    out = torch.zeros(*q.shape[:-1], v.size(-1), dtype=torch.float64)
    shared = q.size(1) // k.size(1)
    for b in range(q.size(0)):
        for h in range(q.size(1)):
            for i in range(q.size(2)):
                visible = min(i + 1, k.size(2)) if causal else k.size(2)
                scores = [float(q[b, h, i] @ k[b, h // shared, j]) / math.sqrt(q.size(-1)) for j in range(visible)]
                weights = [math.exp(score - max(scores)) for score in scores]
                for j, weight in enumerate(weights):
                    out[b, h, i] += weight / sum(weights) * v[b, h // shared, j]
    return out


def assert_same(found, expected, dtype):
    scale = max(1.0, expected.abs().max().item())
    assert (found.double() - expected.double()).abs().max().item() <= TOLERANCE[dtype] * scale


def gradients(output, inputs):
    upstream = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).view(output.shape)
    return torch.autograd.grad(output, inputs, upstream.to(output.dtype))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("recompute", [False, True])
def test_output_is_the_formula_evaluated_in_a_loop(causal, kv_heads, recompute):
    q, k, v = tensors(2, 4, kv_heads, 5, 7, 3, grad=False)
    found = FusedSDPA.apply(q, k, v, None, 0.0, causal, None, "None", recompute)
    assert_same(found, loop_attention(q, k, v, causal), torch.float64)


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("mask", ["none", "boolean", "added"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("recompute", [False, True])
def test_output_and_gradients_match_the_reference_in_double(dtype, mask, causal, recompute):
    inputs = tensors(2, 4, 2, 150, 150, 16, dtype)
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    values = torch.randn(1, 1, 150, 150, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    chosen = {"none": None, "boolean": values > -1.0, "added": values}[mask]
    same = chosen.to(dtype) if mask == "added" else chosen
    found = FusedSDPA.apply(*inputs, same, 0.0, causal, 0.2, "None", recompute)
    rounded = same.double() if mask == "added" else chosen
    expected, _ = attention(*exact, rounded, causal, 0.2)
    assert_same(found, expected, dtype)
    for ours, theirs in zip(gradients(found, inputs), gradients(expected, exact), strict=True):
        assert_same(ours, theirs, dtype)


@settings(max_examples=20)
@given(
    batch=st.integers(1, 3),
    groups=st.integers(1, 3),
    shared=st.integers(1, 3),
    queries=st.integers(1, 140),
    keys=st.integers(1, 140),
    size=st.integers(1, 9),
    causal=st.booleans(),
    recompute=st.booleans(),
    mask=st.sampled_from([None, "boolean", "added"]),
    scale=st.sampled_from([None, 0.3]),
)
def test_any_signature_matches_the_math_of_torch(
    batch, groups, shared, queries, keys, size, causal, recompute, mask, scale
):
    q, k, v = tensors(batch, groups * shared, groups, queries, keys, size)
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(queries, keys, generator=generator, dtype=torch.float64)
    values[:, 0] = 1.0  # a query without keys has no gradient to compare
    given = {None: None, "boolean": values > 0, "added": values}[mask]
    whole = torch.zeros(queries, keys, dtype=torch.float64)
    if mask is not None:
        whole = whole.masked_fill(~given, float("-inf")) if mask == "boolean" else given
    if causal:
        whole = whole.masked_fill(~torch.ones(queries, keys, dtype=torch.bool).tril(), float("-inf"))
    with sdpa_kernel(SDPBackend.MATH):
        expected = F.scaled_dot_product_attention(q, k, v, whole, scale=scale, enable_gqa=True)
    found = FusedSDPA.apply(q, k, v, given, 0.0, causal, scale, "None", recompute)
    assert_same(found, expected, torch.float64)
    for ours, theirs in zip(gradients(found, (q, k, v)), gradients(expected, (q, k, v)), strict=True):
        assert_same(ours, theirs, torch.float64)


@pytest.mark.parametrize("recompute", [False, True])
def test_gradients_agree_with_finite_differences(recompute):
    inputs = tensors(1, 2, 1, 4, 5, 3)
    mask = torch.tensor([True, True, False, True, True])

    def run(q, k, v):
        return FusedSDPA.apply(q, k, v, mask, 0.0, True, None, "None", recompute)

    assert torch.autograd.gradcheck(run, inputs)


def test_three_dimensional_inputs_have_no_head_axis():
    q, k, v = (tensor.squeeze(1) for tensor in tensors(2, 1, 1, 4, 4, 3, grad=False))
    mask = torch.ones(2, 4, 4, dtype=torch.bool).tril()
    expected, weights = attention(q, k, v, mask)
    found, probabilities = FusedSDPA.apply(q, k, v, mask, 0.0, False, None, "None", None, None, "left", False, True)
    assert_same(found, expected, torch.float64)
    assert_same(probabilities, weights, torch.float64)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_a_query_without_keys_gives_zeros(recompute, causal):
    q, k, v = tensors(1, 1, 1, 3, 3, 2, grad=False)
    mask = torch.ones(3, 3, dtype=torch.bool)
    mask[0] = False
    out = FusedSDPA.apply(q, k, v, mask, 0.0, causal, None, "None", recompute)
    assert out[0, 0, 0].tolist() == [0.0, 0.0]
    assert out[0, 0, 1:].abs().min().item() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nan_stays_in_its_row_where_the_formula_runs(dtype):
    """PyTorch's kernel for CPUs returns zeros for a NaN query, so only the formula can be tested."""
    q, k, v = tensors(1, 1, 1, 6, 6, 4, dtype, grad=False)
    q[0, 0, 2] = float("nan")
    out = FusedSDPA.apply(q, k, v, None, 0.0, True, None, "None", False)
    assert out.isnan().all(-1).flatten().tolist() == [False, False, True, False, False, False]
    q, k, v = tensors(1, 1, 1, 6, 6, 4, dtype, grad=False)
    k[0, 0, 4] = float("nan")
    out = FusedSDPA.apply(q, k, v, None, 0.0, True, None, "None", False)
    assert out.isnan().all(-1).flatten().tolist() == [False, False, False, False, True, True]


@pytest.mark.parametrize("recompute", [False, True])
def test_a_score_of_infinity_takes_all_the_weight_or_none(recompute):
    q, k, v = tensors(1, 1, 1, 2, 3, 2, grad=False)
    added = torch.tensor([0.0, float("-inf"), 0.0], dtype=torch.float64)
    found = FusedSDPA.apply(q, k, v, added, 0.0, False, None, "None", recompute)
    expected, _ = attention(q, k[:, :, [0, 2]], v[:, :, [0, 2]])
    assert_same(found, expected, torch.float64)


def test_fast_softmax_is_accepted_in_bfloat16_and_stays_close_to_the_exact_result():
    q, k, v = tensors(1, 4, 4, 600, 600, 16, torch.bfloat16, grad=False)
    fast = FusedSDPA.apply(q, k, v, None, 0.0, True, None, "FAST")
    exact, _ = attention(q.double(), k.double(), v.double(), None, True)
    assert_same(fast, exact, torch.bfloat16)


class CountElements(torch.utils._python_dispatch.TorchDispatchMode):
    """Keeps the number of elements of the largest result of any operator."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_only_no_recompute_holds_a_matrix_of_scores(dtype):
    q, k, v = tensors(1, 2, 2, 2048, 2048, 8, dtype)
    with CountElements() as count:
        out = FusedSDPA.apply(q, k, v, None, 0.0, True)
        gradients(out, (q, k, v))
    assert count.largest <= 2 * 2048 * 8
    with CountElements() as count:
        FusedSDPA.apply(q, k, v, None, 0.0, True, None, "None", False)
    assert count.largest == 2 * 2048 * 2048


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_plain_call_is_the_op_of_torch_bit_by_bit(kv_heads, dtype):
    inputs = tensors(2, 4, kv_heads, 33, 33, 16, dtype)
    mask = torch.ones(33, 33, dtype=torch.bool).tril(3)
    for chosen, causal in ((None, False), (None, True), (mask, False)):
        found = FusedSDPA.apply(*inputs, chosen, 0.0, causal, 0.3)
        expected = F.scaled_dot_product_attention(*inputs, chosen, 0.0, causal, scale=0.3, enable_gqa=kv_heads != 4)
        assert torch.equal(found, expected)
        assert all(map(torch.equal, gradients(found, inputs), gradients(expected, inputs)))


def test_the_switches_set_the_mode_of_calls_without_one():
    assert recompute_sdp_enabled()
    with sdp_kernel(enable_recompute=False):
        assert not recompute_sdp_enabled()
        with sdp_kernel():
            assert recompute_sdp_enabled()
        assert not recompute_sdp_enabled()
    assert recompute_sdp_enabled()
    enable_recompute_sdp(False)
    try:
        q, k, v = tensors(1, 1, 1, 2, 2, 2, grad=False)
        _, mask = FusedSDPA.apply(q, k, v, None, 0.0, False, None, "None", None, None, "left", True)
        assert mask.all()
    finally:
        enable_recompute_sdp(True)


def test_the_mode_returns_when_the_block_raises():
    with pytest.raises(ZeroDivisionError), sdp_kernel(enable_recompute=False):
        raise ZeroDivisionError
    assert recompute_sdp_enabled()


@pytest.mark.parametrize(("tokens", "recompute"), [(600, True), (20, False)])
def test_attention_compiles_into_one_graph(tokens, recompute):
    inputs = tensors(1, 2, 2, tokens, tokens, 8, torch.bfloat16)

    def run(q, k, v):
        return FusedSDPA.apply(q, k, v, None, 0.0, True, None, "None", recompute)

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*inputs), run(*inputs))
    ours, eager = gradients(compiled(*inputs), inputs), gradients(run(*inputs), inputs)
    assert all(torch.equal(left, right) for left, right in zip(ours, eager, strict=True))
