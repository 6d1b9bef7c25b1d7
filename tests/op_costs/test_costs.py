"""Compares the costs of ops with another tool's costs for one recording, with PyTorch's counter and with PyTorch's
signatures.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from perftool.op_costs.attention import ATTENTION
from perftool.op_costs.call import Call
from perftool.op_costs.convolutions import CONVOLUTIONS
from perftool.op_costs.cost import Cost
from perftool.op_costs.model import MODELS, cost_of
from perftool.op_costs.seen import results

BF16, FLOAT = "c10::BFloat16", "float"


def record(*arguments: Any) -> tuple[str, str, str]:
    """Return the profiler's record of some arguments: a tensor is given as ``(type, *dims)``, a list of tensors as
    ``Many``, and anything else as None or a scalar.
    """
    dims = [a.dims if isinstance(a, Many) else list(a[1:]) if isinstance(a, tuple) else [] for a in arguments]
    types = [
        "TensorList" if isinstance(a, Many) else a[0] if isinstance(a, tuple) else "" if a is None else "Scalar"
        for a in arguments
    ]
    scalars = ["" if a is None or isinstance(a, (tuple, Many)) else str(a) for a in arguments]
    return json.dumps(dims), json.dumps(types), json.dumps(scalars)


class Many:
    """A list of tensors with these shapes."""

    def __init__(self, *dims: list[int]) -> None:
        self.dims = list(dims)


def cost(name: str, *arguments: Any, element_bytes: int | None = None) -> Cost | None:
    """Return the cost of a call of ``name``, which is an ATen op unless the name has a namespace."""
    name = name if "::" in name or name.startswith("triton") else f"aten::{name}"
    return cost_of(name, *record(*arguments), element_bytes)


def test_types_and_lists_as_other_tools_spell_them() -> None:
    inner = ([2, 2], [3, 3], [1, 1])
    ours = cost("convolution", (FLOAT, 1, 3, 64, 64), (FLOAT, 8, 3, 7, 7), None, *inner, False, [0, 0], 1)
    theirs = ("(" + ",".join(map(str, sizes)) + ")" for sizes in inner)
    assert ours is not None
    assert ours == cost("convolution", ("Float", 1, 3, 64, 64), ("Float", 8, 3, 7, 7), None, *theirs, False, "(0,0)", 1)
    assert cost("mm", ("BFloat16", 8, 4), ("BFloat16", 4, 2)) == cost("mm", (BF16, 8, 4), (BF16, 4, 2))


def test_types_that_are_not_names_give_no_cost() -> None:
    assert cost_of("aten::linear", "[[2, 3], [4, 3]]", '[["a"], {"b": 1}]', "[]") is None


def test_a_list_of_one_number_as_python_writes_it() -> None:
    line = [(FLOAT, 1, 3, 64), (FLOAT, 8, 3, 7), None]
    theirs = cost("convolution", *line, "(2,)", "(3,)", "(1,)", False, "(0,)", 1)
    assert theirs is not None
    assert theirs == cost("convolution", *line, [2], [3], [1], False, [0], 1)


QKV = [(BF16, 16, 559, 16, 64)] * 3

# Operations, and MiB of memory traffic, in an inference step on an H100, as counted by TraceLens.
COUNTED: list[tuple[str, list[Any], float, float]] = [
    ("mm", [(BF16, 8944, 1024), (BF16, 1024, 2816)], 51581550592, 71.0078125),
    ("addmm", [(BF16, 1024), (BF16, 8944, 1024), (BF16, 1024, 1024), 1, 1], 18766086144, 36.939453125),
    ("bmm", [(FLOAT, 1, 32, 1), (FLOAT, 1, 1, 559)], 35776, 0.07049179077148438),
    ("_flash_attention_forward", [*QKV, None, None, 559, 559, 0.0, True, False], 10239377408, 69.875),
    ("mul", [(FLOAT, 16, 559, 1024), (FLOAT, 16, 559, 1)], 9158656, 69.90911865234375),
    ("mul", [(BF16, 1024), (BF16, 16, 559, 1024)], 9158656, 34.939453125),
    ("add", [(FLOAT, 16, 559, 1), ("double",), 1], 8944, 0.06824493408203125),
    ("pow", [(FLOAT, 16, 559, 1024), 2], 9158656, 69.875),
    ("silu", [(BF16, 16, 559, 2816)], 25186304, 96.078125),
]


@pytest.mark.parametrize(("name", "arguments", "flops", "mib"), COUNTED)
def test_costs_of_a_recording_match_another_tool(name: str, arguments: list[Any], flops: float, mib: float) -> None:
    found = cost(name, *arguments)
    assert found is not None
    assert (found.flops, found.bytes / 2**20) == (flops, pytest.approx(mib))


def test_a_copy_moves_bytes_and_computes_nothing() -> None:
    found = cost("copy_", (BF16, 16, 559, 1024), (FLOAT, 16, 559, 1024), False)
    assert found == Cost(0, 6 * 16 * 559 * 1024, "vector", "bf16")


def test_a_mean_over_one_dimension_writes_a_number_for_each_row() -> None:
    rows = (FLOAT, 16, 559, 1024)
    assert cost("mean", rows, [-1], True, None) == Cost(9158656, 4 * (9158656 + 16 * 559), "vector", "fp32")
    assert cost("mean", rows, None, True, None) == Cost(9158656, 4 * (9158656 + 1), "vector", "fp32")


@pytest.mark.parametrize(("stride", "padding", "dilation", "groups"), [(1, 0, 1, 1), (2, 1, 1, 1), (1, 2, 2, 3)])
def test_convolutions_as_pytorch_counts_them(stride: int, padding: int, dilation: int, groups: int) -> None:
    x = torch.ones(2, 6, 11, 13, requires_grad=True)
    weight = torch.ones(9, 6 // groups, 3, 5, requires_grad=True)
    with FlopCounterMode(display=False) as forward:
        y = torch.nn.functional.conv2d(x, weight, None, stride, padding, dilation, groups)
    with FlopCounterMode(display=False) as backward:
        y.sum().backward()  # type: ignore[no-untyped-call]
    x_, w_, y_ = ((FLOAT, *one.shape) for one in (x, weight, y))
    how = [[stride] * 2, [padding] * 2, [dilation] * 2]
    once = cost("convolution", x_, w_, None, *how, False, [0, 0], groups)
    gradients = cost("convolution_backward", y_, x_, w_, [0], *how, False, [0, 0], groups, [True, True, False])
    assert once is not None
    assert gradients is not None
    if dilation == groups == 1:
        assert cost("_slow_conv2d_backward", y_, x_, w_, [3, 5], *how[:2], [True, True, False]) == gradients
    assert once.flops == forward.get_total_flops()
    assert once.bytes == 4 * (x.numel() + weight.numel() + y.numel())
    # For the gradient of a filter, PyTorch's counter ignores groups.
    assert gradients.flops == (backward.get_total_flops() if groups == 1 else 2 * once.flops)


@pytest.mark.parametrize("heads", [8, 2])
def test_attention_without_a_mask_takes_its_products(heads: int) -> None:
    queries, keys = (BF16, 4, 8, 128, 64), (BF16, 4, heads, 256, 64)
    found = cost("_scaled_dot_product_flash_attention", queries, keys, keys, 0.0, False, False)
    # Shared heads of keys and values are read once but multiplied with every query head.
    assert found == Cost(4 * 4 * 8 * 128 * 256 * 64, 2 * 2 * 4 * 64 * (8 * 128 + heads * 256), "matrix", "bf16")


def test_the_backward_of_attention_takes_five_products_for_two() -> None:
    q = (BF16, 4, 8, 128, 64)
    name = "_scaled_dot_product_flash_attention"
    once = cost(name, q, q, q, 0.0, True, False)
    back = cost(f"{name}_backward", q, q, q, q, q, (FLOAT, 4, 8, 128), None, None, 128, 128, 0.0, True)
    assert once is not None
    assert back is not None
    assert (back.flops, back.bytes) == (2.5 * once.flops, 2 * once.bytes)


def test_a_causal_mask_ends_at_the_last_of_both() -> None:
    one, many = (BF16, 1, 1, 2, 64), (BF16, 1, 1, 100, 64)
    few = cost("_scaled_dot_product_flash_attention", one, many, many, 0.0, True, False)
    assert few is not None
    assert few.flops == 4 * 64 * (100 * 2 - 2)


def test_a_layer_of_an_rnn_multiplies_input_and_state_in_each_time_step() -> None:
    x, of_input, of_state = (FLOAT, 64, 16, 128), (FLOAT, 1024, 128), (FLOAT, 1024, 256)
    once = cost("mkldnn_rnn_layer", x, of_input, of_state)
    back = cost("mkldnn_rnn_layer_backward", x, of_input, of_state)
    elements = 64 * 16 * (128 + 256) + 1024 * (128 + 256)
    assert once == Cost(2 * 64 * 16 * 1024 * (128 + 256), 4 * elements, "matrix", "fp32")
    assert back == Cost(2 * once.flops, 2 * once.bytes, "matrix", "fp32")


# The names of the arguments of each layout in PyTorch's signatures.
ARGUMENTS = {
    "causal": {"is_causal", "custom_mask_type"},
    "bias": {"bias", "attn_bias"}, "term": {"z"}, "packed": {"cum_seq_q", "cu_seqlens_q"},
    "stride": {"stride"}, "padding": {"padding"}, "dilation": {"dilation"}, "transposed": {"transposed"},
    "query": {"query", "self"},
}  # fmt: skip
LAYOUTS = [(name, model) for name, model in {**ATTENTION, **CONVOLUTIONS}.items() if hasattr(model, "__dict__")]


@pytest.mark.parametrize(("name", "layout"), [pair for pair in LAYOUTS if vars(pair[1])])
def test_layouts_follow_the_signatures_of_pytorch(name: str, layout: object) -> None:
    signature = getattr(torch.ops.aten, name.removeprefix("aten::")).default._schema.arguments
    for field, position in vars(layout).items():
        if field in ARGUMENTS and position is not None:
            assert signature[position].name in ARGUMENTS[field], (name, field)


def test_every_model_is_for_an_existing_op() -> None:
    # Each name is listed with and without "_", although not every op has an in-place form. PyTorch 1.11 removed the
    # parts of the convolution's backward.
    here = [name for name in MODELS if name.startswith("aten::") and "_convolution_backward_" not in name]
    missing = [name for name in here if not hasattr(torch.ops.aten, name.removeprefix("aten::").removesuffix("_"))]
    assert [name for name in missing if not hasattr(torch.ops.aten, name.removeprefix("aten::"))] == ["aten::_cat"]


@pytest.mark.parametrize(
    ("name", "dims", "types", "scalars"),
    [
        ("aten::mm", None, None, None),
        ("aten::mm", "[]", "[]", "[]"),
        ("aten::mm", "[[4,4],[5,4]]", '["float","float"]', "[]"),
        ("aten::mm", '[["s0",4],[4,4]]', '["float","float"]', "[]"),
        ("aten::mm", "[[-1,4],[4,4]]", '["float","float"]', "[]"),
        ("aten::mm", "[[1e3,4],[4,4]]", '["float","float"]', "[]"),
        ("aten::mm", "[[9007199254740992,4],[4,9007199254740992]]", '["float","float"]', "[]"),
        ("aten::mm", "[[4,4],[4,4]]", '["float","unheard of"]', "[]"),
        ("aten::mm", "{", '["float"]', "[]"),
        ("aten::mm", '{"a": 1}', "3", "null"),
        ("aten::mm", "[" * 100_000, "[]", "[]"),
        ("aten::mean", "[[4]]", '["float","ScalarList"]', '["","[7]"]'),
        ("aten::mean", "[[4]]", '["float","ScalarList"]', "[]"),
        ("aten::convolution", "[[],[]]", '["float","float"]', '["","","","[0]","[0]","[1]","False"]'),
        ("aten::add", "[[3],[4]]", '["float","float"]', "[]"),
        ("aten::cat", "[[[4],[4]],[]]", '["TensorList","Scalar"]', '["","0"]'),
        ("mine::op", "[[4]]", '["float"]', "[]"),
    ],
)  # fmt: skip
def test_ops_without_a_model_have_no_cost(name: str, dims: str | None, types: str | None, scalars: str | None) -> None:
    assert cost_of(name, dims, types, scalars) is None


def test_every_model_takes_any_record() -> None:
    """Empty or missing tensors, lists and unusual scalars yield a cost or None, but never an error."""
    shapes: tuple[list[Any], ...] = ([], [0], [0, 4], [2, 3], [2, 0, 4], [1, 2, 3, 4], [[2], [0, 4]], [[]])
    for kind in ("float", "TensorList"):
        for dims in shapes:
            for scalar in ("", "0", "1", "-9", "[]", "[0, 0]", "True", "[True, False, True]", "nan", "1e400"):
                texts = [json.dumps(part) for part in ([dims] * 16, [kind] * 16, [scalar] * 16)]
                for name in MODELS:
                    found = cost_of(name, *texts, 4, texts[0])
                    assert found is None or ((found.flops or 0) >= 0 and found.bytes >= 0), name


def test_an_embedding_reads_only_the_rows_looked_up() -> None:
    found = cost("embedding", (BF16, 30522, 512), ("long int", 2, 70))
    assert found == Cost(0, 2 * 140 * 512 * 2 + 8 * 140, "vector", "bf16")


def test_a_missing_tensor_differs_from_an_empty_one() -> None:
    assert not Call([[]], [""], []).has(0)


HALF = [(BF16, 8, 64)]
PARAMETERS = Many([100, 10], [10])


@pytest.mark.parametrize(
    ("name", "arguments", "flops", "size"),
    [
        # Each part is read once and written once.
        ("cat", [Many([2, 3], [2, 5]), -1], 0, 2 * 4 * 16),
        ("_foreach_add_", [PARAMETERS, PARAMETERS, 1], 1010, 4 * 3 * 1010),
        ("_foreach_mul_", [PARAMETERS, 0.9], 1010, 4 * 2 * 1010),
        ("_foreach_copy_", [PARAMETERS, PARAMETERS, False], 0, 4 * 2 * 1010),
        ("_foreach_addcdiv_", [PARAMETERS, PARAMETERS, PARAMETERS, 1], 3030, 4 * 4 * 1010),
        ("_foreach_norm", [PARAMETERS, 2], 2020, 4 * 1010),
        # The parameter and two moments are read and written; the gradient is only read.
        ("_fused_adamw_", [PARAMETERS] * 4 + [None], 15 * 1010, 4 * 7 * 1010),
        ("_fused_sgd_", [PARAMETERS, PARAMETERS], 6 * 1010, 4 * 3 * 1010),
        ("max_pool2d_with_indices", [(FLOAT, 2, 3, 8, 8), [3, 3], [2, 2], [1, 1], [1, 1], False],
         9 * 96, 4 * (384 + 96) + 8 * 96),
        ("max_pool2d_with_indices", [(FLOAT, 2, 3, 8, 8), [2], [], [0], [1], False], 4 * 96, 4 * (384 + 96) + 8 * 96),
        ("max_pool2d_with_indices_backward", [(FLOAT, 2, 3, 4, 4), (FLOAT, 2, 3, 8, 8)], 96, 4 * (96 + 384) + 8 * 96),
        ("_adaptive_avg_pool2d", [(FLOAT, 2, 3, 8, 8), [1, 1]], 384, 4 * (384 + 6)),
        ("mse_loss", [(FLOAT, 4, 8), (FLOAT, 4, 8), 1], 96, 4 * 65),
        ("mse_loss", [(FLOAT, 4, 8), (FLOAT, 4, 8), 0], 96, 4 * 96),
        ("_int_mm", [("signed char", 8, 16), ("signed char", 16, 4)], 1024, 8 * 16 + 16 * 4 + 4 * 32),
        ("_grouped_mm", [(BF16, 64, 16), (BF16, 4, 16, 8), ("int", 4)], 2 * 64 * 16 * 8, 2 * (1024 + 512 + 512) + 16),
        ("index_add_", [(FLOAT, 100, 8), 0, ("long int", 4), (FLOAT, 4, 8)], 32, 3 * 128 + 32),
        ("triton_poi_fused_mul_silu_2", [*HALF * 3, 512], None, 3 * 1024),
        ("_C::rms_norm", [*HALF * 2, (BF16, 64), 1e-5], 4 * 512, 2 * 1024 + 128),
        ("_C::fused_add_rms_norm", [*HALF * 2, (BF16, 64), 1e-5], 5 * 512, 4 * 1024 + 128),
        ("_C::silu_and_mul", [(BF16, 8, 32), (BF16, 8, 64)], 512, 512 + 1024),
        ("_C::rotary_embedding", [("long int", 8), *HALF * 2, 64, (BF16, 4096, 64), True],
         3 * 1024, 4 * 1024 + 64 + 1024),
    ],
)  # fmt: skip
def test_models_by_hand(name: str, arguments: list[Any], flops: int | None, size: int) -> None:
    found = cost(name, *arguments, element_bytes=4)
    assert found is not None
    assert (found.flops, found.bytes) == (flops, size)


@pytest.mark.parametrize("name", ["triton_tem_fused_mm_1", "triton_poi_fused_embedding_0", "flash_attn::varlen_fwd"])
def test_ops_whose_sizes_are_not_in_the_arguments_have_no_model(name: str) -> None:
    assert cost(name, *HALF * 3) is None


@pytest.mark.parametrize("name", ["bernoulli_", "uniform_", "normal_", "random_", "exponential_", "geometric_"])
def test_random_numbers_have_no_model_because_their_generator_limits_them(name: str) -> None:
    assert cost(name, (FLOAT, 4, 8), 0.1, None) is None
    assert cost("fill_", (FLOAT, 4, 8), 0.1) is not None


def test_a_list_of_elements_of_unknown_size_has_no_cost() -> None:
    assert cost("cat", Many([4], [4]), 0) is None


def test_a_transposed_convolution_works_from_its_input() -> None:
    x, weight = torch.ones(2, 6, 5, 7), torch.ones(6, 3, 3, 3)
    with FlopCounterMode(display=False) as counter:
        y = torch.nn.functional.conv_transpose2d(x, weight, None, 2, 1, 1, 2)
    arguments = [(FLOAT, *x.shape), (FLOAT, *weight.shape), None, [2, 2], [1, 1], [1, 1], True, [1, 1], 2]
    found = cost("convolution", *arguments)
    assert found is not None
    assert found.flops == 2 * x.numel() * weight[0].numel()
    assert found.bytes == 4 * (x.numel() + weight.numel() + y.numel())
    # PyTorch's counter ignores groups.
    assert counter.get_total_flops() in (found.flops, found.flops // 2, 2 * found.flops)


def test_a_convolution_without_recorded_stride_has_the_result_that_its_gradient_shows() -> None:
    shapes = record((FLOAT, 2, 3, 8, 8), (FLOAT, 4, 3, 3, 3))[:2]
    once = [((2, 3, 8, 8), (4, 3, 3, 3), (2, 4, 8, 8))]
    twice = [*once, ((2, 3, 8, 8), (4, 3, 3, 3), (2, 4, 4, 4))]
    found = cost_of("aten::cudnn_convolution", *shapes, None, seen=results(once))
    assert found == Cost(2 * 512 * 27, 4 * (384 + 108 + 512), "matrix", "fp32")
    assert cost_of("aten::cudnn_convolution", *shapes, None, seen=results(twice)) is None


def test_the_parts_of_a_gradient_get_their_shapes_from_the_whole_op() -> None:
    outer = json.dumps([[2, 3, 8, 8], [2, 4, 8, 8], [4, 3, 3, 3]])
    shapes = record([], (FLOAT, 2, 4, 8, 8), (FLOAT, 4, 3, 3, 3))[:2]
    found = cost_of("aten::cudnn_convolution_backward_input", *shapes, None, outer=outer)
    assert found == Cost(2 * 512 * 27, 4 * (384 + 108 + 512), "matrix", "fp32")
    assert cost_of("aten::cudnn_convolution_backward_input", *shapes, None) is None
