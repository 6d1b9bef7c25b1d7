"""The sizes of calls, as recorded by the profiler."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perftool.op_costs.sizes import Sizes, sizes_of

BF16 = "c10::BFloat16"


def sizes(name: str, dims: list[Any], scalars: list[str] | None = None) -> Sizes:
    types = [BF16 if shape else "" for shape in dims]
    return sizes_of(name, json.dumps(dims), json.dumps(types), json.dumps(scalars or []))


def test_products_of_each_form() -> None:
    assert sizes("aten::mm", [[3, 5], [5, 7]]) == Sizes(batch=1, m=3, k=5, n=7)
    assert sizes("aten::addmm", [[7], [3, 5], [5, 7]]) == Sizes(batch=1, m=3, k=5, n=7)
    assert sizes("aten::bmm", [[2, 3, 5], [2, 5, 7]]) == Sizes(batch=2, m=3, k=5, n=7)
    assert sizes("aten::linear", [[2, 3, 5], [7, 5]]) == Sizes(batch=1, m=6, k=5, n=7)


def test_a_grouped_product_has_the_mean_number_of_rows_in_a_group() -> None:
    assert sizes("aten::_grouped_mm", [[256, 64], [16, 64, 32], [16]]) == Sizes(batch=1, m=16, k=64, n=32, groups=16)


def test_a_convolution_is_a_product_of_places_and_filters() -> None:
    found = sizes(
        "aten::cudnn_convolution",
        [[8, 32, 10, 10], [64, 16, 3, 3], [], [], [], [], [], [], []],
        ["", "", "[1, 1]", "[2, 2]", "[1, 1]", "2", "False", "False", "True"],
    )

    assert (found.m, found.n, found.k) == (8 * 5 * 5, 32, 16 * 9)
    assert (found.groups, found.channels, found.filter_size, found.dilation, found.transposed) == (2, 32, 9, 1, False)


def test_the_gradients_of_a_convolution_have_its_sizes() -> None:
    found = sizes(
        "aten::convolution_backward",
        [[8, 64, 5, 5], [8, 32, 10, 10], [64, 32, 3, 3], [], [], [], [], [], [], [], []],
        ["", "", "", "[0]", "[2, 2]", "[1, 1]", "[3, 3]", "False", "[0, 0]", "1", "[True, True, False]"],
    )

    assert (found.m, found.n, found.k, found.dilation) == (8 * 5 * 5, 64, 32 * 9, 3)


def test_heads_and_sequences_of_both_layouts() -> None:
    flash = sizes("aten::_flash_attention_forward", [[2, 100, 8, 64], [2, 300, 4, 64], [2, 300, 4, 64]])
    packed = sizes("aten::_scaled_dot_product_flash_attention", [[2, 8, 100, 64], [2, 4, 300, 64], [2, 4, 300, 64]])

    assert flash == packed == Sizes(batch=2, heads=8, queries=100, keys=300, head_size=64)


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("aten::mm", "[[3, 5]]"),
        ("aten::mm", "no JSON"),
        ("aten::relu", "[[3, 5]]"),
        ("aten::cudnn_convolution", "[[1],[2]]"),
    ],
)
def test_calls_without_recorded_shapes_have_no_sizes(name: str, dims: str) -> None:
    assert sizes_of(name, dims, json.dumps([BF16, BF16]), None) == Sizes()
