"""What ops need, against a recording that another tool counted, PyTorch's own counter, and PyTorch's signatures."""

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

BF16, FLOAT = "c10::BFloat16", "float"


def cost(name: str, *arguments: Any) -> Cost | None:
    """The cost of a call whose arguments are tensors as ``(type, *dims)``, None, or scalars."""
    dims = [list(a[1:]) if isinstance(a, tuple) else [] for a in arguments]
    types = [a[0] if isinstance(a, tuple) else "" if a is None else "Scalar" for a in arguments]
    scalars = ["" if a is None or isinstance(a, tuple) else str(a) for a in arguments]
    return cost_of(f"aten::{name}", *(json.dumps(part) for part in (dims, types, scalars)))


QKV = [(BF16, 16, 559, 16, 64)] * 3

# Operations, and bytes as MiB, of an inference step on an H100, as TraceLens counted them.
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
def test_a_recording_that_another_tool_counted(name: str, arguments: list[Any], flops: float, mib: float) -> None:
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
    assert once.flops == forward.get_total_flops()
    assert once.bytes == 4 * (x.numel() + weight.numel() + y.numel())
    # PyTorch's counter takes the gradient of a grouped filter for that of a whole one.
    assert gradients.flops == (backward.get_total_flops() if groups == 1 else 2 * once.flops)


@pytest.mark.parametrize("heads", [8, 2])
def test_attention_without_a_mask_takes_its_products(heads: int) -> None:
    queries, keys = (BF16, 4, 8, 128, 64), (BF16, 4, heads, 256, 64)
    found = cost("_scaled_dot_product_flash_attention", queries, keys, keys, 0.0, False, False)
    # Shared heads are read once, but every head of the queries works with them.
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


# The name by which PyTorch's signature knows the argument that a layout points at.
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


def test_every_model_is_of_an_op_that_exists() -> None:
    # Names with "_" come in pairs, and not every op writes in place.
    missing = [name for name in MODELS if not hasattr(torch.ops.aten, name.removeprefix("aten::").removesuffix("_"))]
    assert [name for name in missing if not hasattr(torch.ops.aten, name.removeprefix("aten::"))] == []


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
def test_what_no_model_covers_has_no_cost(name: str, dims: str | None, types: str | None, scalars: str | None) -> None:
    assert cost_of(name, dims, types, scalars) is None


@pytest.mark.parametrize("name", MODELS)
def test_every_model_takes_any_record(name: str) -> None:
    """Empty tensors, missing ones and odd scalars give a cost or none, never an error."""
    for dims in ([], [0], [0, 4], [2, 3], [2, 0, 4], [1, 2, 3, 4]):
        for scalar in ("", "0", "1", "-9", "[]", "[0, 0]", "True", "[True, False, True]", "nan", "1e400"):
            record = ([dims] * 16, ["float"] * 16, [scalar] * 16)
            found = cost_of(name, *(json.dumps(part) for part in record))
            assert found is None or (found.flops >= 0 and found.bytes >= 0)


def test_rows_of_a_table_are_all_that_is_read() -> None:
    found = cost("embedding", (BF16, 30522, 512), ("long int", 2, 70))
    assert found == Cost(0, 2 * 140 * 512 * 2 + 8 * 140, "vector", "bf16")


def test_a_missing_tensor_is_not_an_empty_one() -> None:
    assert not Call([[]], [""], []).has(0)
