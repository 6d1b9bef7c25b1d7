"""FusedSDPA's additional outputs, dropout, valid lengths, and the calls that it refuses."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perftool.fused import FusedSDPA, backends, dispatch
from perftool.fused.attention import formula as attention
from perftool.fused.dispatch import BackendError


def qkv(batch=2, heads=2, tokens=5, size=4, dtype=torch.float64, grad=False):
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(batch, heads, tokens, size, generator=generator).to(dtype) for _ in range(3)]
    return [tensor.requires_grad_(grad) for tensor in made]


def call(tensors, **changes):
    """Call FusedSDPA.apply with keyword arguments, which keeps the tests readable. The function itself accepts only
    positional ones."""
    names = ("attn_mask", "dropout_p", "is_causal", "scale", "softmax_mode", "recompute_mode",
             "valid_seq_len", "seq_padding_type", "return_dropout_mask", "return_attn_probs")  # fmt: skip
    defaults = (None, 0.0, False, None, "None", None, None, "left", False, False)
    arguments = dict(zip(names, defaults, strict=True)) | changes
    return FusedSDPA.apply(*tensors, *arguments.values())


def test_keywords_are_refused_as_by_the_original():
    with pytest.raises(TypeError, match="positional-only"):
        FusedSDPA.apply(*qkv(), is_causal=True)


def test_outputs_come_in_the_documented_order():
    tensors = qkv()
    torch.manual_seed(1)
    out, probabilities, keep = call(
        tensors, dropout_p=0.5, return_dropout_mask=True, return_attn_probs=True, is_causal=True
    )
    expected, weights = attention(*tensors, None, True, keep=keep, dropout_p=0.5)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(probabilities, weights)
    assert keep.dtype == torch.bool
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(2, 2, 5, dtype=torch.float64))


@pytest.mark.parametrize("grad", [False, True])
def test_dropout_mask_without_dropout_keeps_everything(grad):
    out, keep = call(qkv(grad=grad), recompute_mode=False, return_dropout_mask=True)
    assert keep.all()
    assert out.requires_grad is grad


def test_gradients_with_dropout_use_the_returned_mask():
    tensors = qkv(grad=True)
    out, keep = call(tensors, dropout_p=0.4, recompute_mode=False, return_dropout_mask=True)
    expected, _ = attention(*tensors, keep=keep, dropout_p=0.4)
    torch.testing.assert_close(out, expected)
    ours, theirs = (torch.autograd.grad(result.square().sum(), tensors) for result in (out, expected))
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left, right)


def test_recomputed_dropout_has_the_same_mask_in_both_passes():
    q, k, _ = qkv(1, 1, 200, 4)
    v = torch.eye(200, dtype=torch.float64)[None, None].requires_grad_()
    out = call((q, k, v), dropout_p=0.3)
    # If the values are the identity, the output is the probability matrix after dropout, and d(sum)/dv contains its
    # column sums.
    (grad,) = torch.autograd.grad(out.sum(), v)
    torch.testing.assert_close(grad[0, 0, :, 0], out[0, 0].sum(0))
    assert 0.2 < (out == 0).double().mean().item() < 0.4


def test_dropout_follows_the_global_seed():
    tensors = qkv(tokens=40)
    results = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        results.append(call(tensors, dropout_p=0.5))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


@pytest.mark.parametrize("padding", ["left", "RIGHT"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("recompute", [True, False])
def test_valid_lengths_equal_attention_on_each_sequence_alone(padding, dtype, recompute):
    tensors = qkv(3, 2, 6, 4, dtype)
    lengths = torch.tensor([4, 6, 0], dtype=torch.int32)
    out = call(tensors, is_causal=True, recompute_mode=recompute, valid_seq_len=lengths, seq_padding_type=padding)
    for index, length in enumerate(lengths.tolist()):
        rows = slice(6 - length, 6) if padding == "left" else slice(0, length)
        alone, _ = attention(*(tensor[index : index + 1, :, rows] for tensor in tensors), None, True)
        # Processors round matmuls in bfloat16 differently. The values are around 1.
        close = {"rtol": 2e-2, "atol": 1e-2} if dtype == torch.bfloat16 else {}
        torch.testing.assert_close(out[index : index + 1, :, rows], alone, **close)
        assert out[index].count_nonzero() == alone.count_nonzero()


@pytest.mark.parametrize("padding", ["left", "right"])
def test_long_valid_lengths_are_exact_where_each_sequence_is_tiled(padding):
    tensors = qkv(2, 3, 400, 8, torch.float32)
    lengths = torch.tensor([400, 170])
    out = call(tensors, is_causal=True, valid_seq_len=lengths, seq_padding_type=padding)
    for index, length in enumerate(lengths.tolist()):
        rows = slice(400 - length, 400) if padding == "left" else slice(0, length)
        alone = (tensor[index : index + 1, :, rows].double() for tensor in tensors)
        expected, _ = attention(*alone, None, True)
        torch.testing.assert_close(out[index : index + 1, :, rows].double(), expected, rtol=0, atol=2e-6)
        padded = torch.ones(400, dtype=torch.bool)
        padded[rows] = False
        assert not out[index, :, padded].any()


def test_valid_lengths_with_probabilities_leave_padding_zero():
    tensors = qkv(1, 1, 4, 2)
    _, probabilities = call(
        tensors,
        is_causal=True,
        valid_seq_len=torch.tensor([2]),
        seq_padding_type="right",
        return_attn_probs=True,
    )
    sums = probabilities.sum(-1).flatten().tolist()
    assert sums == pytest.approx([1.0, 1.0, 0.0, 0.0])


@settings(max_examples=12)
@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=4), left=st.booleans())
def test_the_contents_of_the_padding_do_not_matter(lengths, left):
    tensors = qkv(len(lengths), 1, 9, 3)
    spoiled = [tensor.clone() for tensor in tensors]
    for index, length in enumerate(lengths):
        padding = slice(0, 9 - length) if left else slice(length, 9)
        for tensor in spoiled:
            tensor[index, :, padding] = float("nan")
    side = "left" if left else "right"
    options = {"is_causal": True, "valid_seq_len": torch.tensor(lengths), "seq_padding_type": side}
    assert torch.equal(call(tensors, **options), call(spoiled, **options))


def test_softmax_in_float32_rounds_bfloat16_once():
    tensors = qkv(dtype=torch.bfloat16)
    exact = torch.nn.functional.scaled_dot_product_attention(*(each.double() for each in tensors))
    for recompute in (True, False):
        out = call(tensors, softmax_mode="FP32", recompute_mode=recompute)
        torch.testing.assert_close(out, exact.bfloat16(), rtol=2**-7, atol=1e-3)


@pytest.mark.parametrize(
    ("changes", "grad", "text"),
    [
        ({"return_attn_probs": True}, True, "return_attn_probs is supported only for inference mode"),
        (
            {"softmax_mode": "fast", "recompute_mode": True},
            True,
            "Optimized softmax mode is supported in recompute training mode only in causal(triangular) mask case",
        ),
        (
            {"valid_seq_len": torch.tensor([1, 2]), "is_causal": True},
            True,
            "Valid sequence length is supported only in inference with is_causal(triangular) mask case",
        ),
        (
            {"valid_seq_len": torch.tensor([1, 2])},
            False,
            "Valid sequence length is supported only in inference with is_causal(triangular) mask case",
        ),
        (
            {"valid_seq_len": torch.tensor([1, 2]), "is_causal": True, "attn_mask": torch.zeros(5, 5)},
            False,
            "Valid sequence length is supported only in inference with is_causal(triangular) mask case",
        ),
        (
            {"return_dropout_mask": True, "recompute_mode": True},
            False,
            "Return_dropout_mask is not supported in recompute mode",
        ),
        ({"return_dropout_mask": True}, True, "Return_dropout_mask is not supported in recompute mode"),
        ({"softmax_mode": "fp32"}, True, "softmax_mode 'fp32' is for bfloat16 tensors, in inference"),
    ],
)
def test_documented_restrictions_raise_with_their_texts(changes, grad, text):
    with pytest.raises(AssertionError, match=re.escape(text)):
        call(qkv(dtype=torch.bfloat16, grad=grad), **changes)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"softmax_mode": "quick"}, "softmax_mode must be one of 'none', 'fast', 'fp32'"),
        ({"softmax_mode": "fast"}, "needs bfloat16"),
        ({"seq_padding_type": "middle"}, "seq_padding_type must be one of 'left', 'right'"),
        ({"dropout_p": 1.0}, "dropout_p"),
        ({"valid_seq_len": torch.tensor([1]), "is_causal": True}, "one length per sequence"),
        ({"valid_seq_len": torch.tensor([1, 6]), "is_causal": True}, "between 0 and 5"),
    ],
)
def test_meaningless_values_are_refused(changes, text):
    with pytest.raises(ValueError, match=text):
        call(qkv(), **changes)


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        (((2, 2, 5, 4), (1, 2, 5, 4), (1, 2, 5, 4)), "same batch size"),
        (((2, 3, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4)), "must divide the number of query heads"),
        (((2, 2, 5, 4), (2, 2, 5, 3), (2, 2, 5, 4)), "head size"),
        (((2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 6, 4)), "number of tokens"),
        (((5, 4), (5, 4), (5, 4)), "dimensions"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes, text):
    with pytest.raises(ValueError, match=text):
        FusedSDPA.apply(*(torch.zeros(shape) for shape in shapes))


def test_mixed_dtypes_are_refused():
    q, k, v = qkv()
    with pytest.raises(ValueError, match="same floating-point dtype"):
        FusedSDPA.apply(q, k.float(), v)


def test_the_backend_can_be_chosen_and_an_impossible_choice_raises(monkeypatch):
    tensors = qkv()
    expected = call(tensors, is_causal=True)
    monkeypatch.setattr(dispatch, "wanted", "reference")
    torch.testing.assert_close(call(tensors, is_causal=True), expected)
    out, keep = call(tensors, dropout_p=0.5, recompute_mode=False, return_dropout_mask=True)
    torch.testing.assert_close(out, attention(*tensors, keep=keep, dropout_p=0.5)[0])
    monkeypatch.setattr(dispatch, "wanted", "habana")
    with pytest.raises(BackendError, match="habana"):
        call(tensors)


def test_backends_reports_the_ops_of_this_half():
    chosen = {report.op: report.chosen for report in backends(["cpu"])}
    for op in ("FusedSDPA", "mixture_of_experts", "all_reduce_gradients", "HPUGraph"):
        assert chosen[op] in {"fast", "reference"}


@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_an_empty_batch_gives_an_empty_result(recompute, grad):
    out = call(qkv(batch=0, grad=grad), is_causal=True, recompute_mode=recompute)
    assert (out.shape, out.requires_grad) == ((0, 2, 5, 4), grad)
