"""Ops of serving engines, with sizes from annotations, grids and packed weights."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perftool.op_costs.cost import Cost
from perftool.op_costs.model import cost_of
from perftool.op_costs.sizes import sizes_of

BF16, FP8, HALF, INT = "c10::BFloat16", "c10::Float8_e4m3fn", "c10::Half", "int"


def cost(name: str, *tensors: tuple[Any, ...] | None, scalars: list[str] | None = None, **more: Any) -> Cost | None:
    dims = [list(one[1:]) if one else [] for one in tensors]
    types = [one[0] if one else "" for one in tensors]
    return cost_of(name, json.dumps(dims), json.dumps(types), json.dumps(scalars or []), **more)


# A recorded step of gpt-oss on a B200: 888 tokens, a router over 128 experts, 342 tiles of 16 tokens.
UP = "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_transOut_swiGlu_sm100f"
DOWN = "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_transOut_sm100f"
GRIDS = [
    {"name": DOWN, "grid": [24, 342, 1]},
    {"name": "quantize", "grid": [888, 1, 1]},
    {"name": UP, "grid": [8, 342, 1]},
]
TOKENS = ((BF16, 888, 3072), (BF16, 888, 128), None)


def test_a_mixture_gets_the_size_of_its_weights_from_its_grids() -> None:
    found = cost("vllm::moe_forward", *TOKENS, grids=json.dumps(GRIDS))
    assert found is not None
    # Four experts per token: 3,552 rows of 3072 x 1024 and 512 x 3072.
    assert found.flops == 2 * 888 * 4 * 3072 * (1024 + 512)
    # A weight takes 4 bits, plus a quarter of a bit for its share of the scale. Tokens reach all experts.
    weights = 128 * 3072 * 1536 * 4.25 / 8
    assert found.bytes == pytest.approx(weights + 2 * 2 * 888 * 3072, rel=1e-6)
    assert (found.unit, found.dtype) == ("matrix", "fp8")
    sizes = sizes_of(
        "vllm::moe_forward",
        "[[888, 3072], [888, 128], []]",
        json.dumps([BF16, BF16, ""]),
        "[]",
        grids=json.dumps(GRIDS),
    )
    assert (sizes.groups, sizes.m, sizes.k, sizes.n) == (128, 28, 3072, 1024)


@pytest.mark.parametrize(
    "grids",
    [
        [], GRIDS[:2], [{**GRIDS[0], "grid": None}, GRIDS[2]],
        # In the first case, no number of experts per token yields 340 tiles. In the second, the size of the result
        # differs.
        [{**GRIDS[0], "grid": [24, 340, 1]}, {**GRIDS[2], "grid": [8, 340, 1]}],
        [{**GRIDS[0], "grid": [20, 342, 1]}, GRIDS[2]],
    ],
)  # fmt: skip
def test_a_mixture_that_its_grids_do_not_explain(grids: list[Any]) -> None:
    assert cost("vllm::moe_forward", *TOKENS, grids=json.dumps(grids)) is None


def test_a_mixture_with_its_weights_reads_the_experts_that_are_reached() -> None:
    given = ((BF16, 2, 64), (BF16, 8, 96, 64), (BF16, 8, 64, 48), ("float", 2, 2), (INT, 2, 2))
    found = cost("vllm::inplace_fused_experts", *given)
    # 2 of 8 experts for each of 2 tokens reach 8 (1 - (3/4)^2) = 3.5 experts.
    assert found == Cost(2 * 2 * 2 * 64 * (96 + 48), 2 * 2 * 2 * 64 + round(3.5 * 2 * 64 * (96 + 48)), "matrix", "bf16")
    packed = cost("aiter::fused_moe_", given[0], ("unsigned char", 8, 96, 32), ("unsigned char", 8, 64, 24), *given[3:])
    assert packed is not None
    assert packed.flops == found.flops


QKV = ((FP8, 888, 8, 64), (BF16, 888, 1, 64), (BF16, 888, 1, 64), (BF16, 888, 8, 64))


def test_attention_over_a_cache_has_the_lengths_of_the_annotation_around_it() -> None:
    # Recorded on a B200: one prompt of 888 tokens.
    found = cost("vllm::unified_attention_with_output", *QKV, around="execute_context_1(888_788544)_generation_0(0)")
    assert found == Cost(4 * 8 * 64 * 888 * 888 // 2, 888 * 8 * 64 * 3 + 2 * 888 * 64, "matrix", "fp8")
    # 32 decoding requests with 55,086 keys, recorded on an MI300X. The heads are invented: 64 for queries and 8 for
    # keys.
    decode = ((BF16, 32, 64, 64), (BF16, 32, 8, 64), (BF16, 32, 8, 64))
    around = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)"
    found = cost("vllm::unified_attention", *decode, around=around)
    cached = 2 * 2 * 55086 * 8 * 64
    assert found == Cost(4 * 64 * 64 * (55086 - 16), 2 * 2 * 32 * 64 * 64 + cached, "matrix", "bf16")


@pytest.mark.parametrize(
    "around",
    ["", "forward", "execute_context_0(0)_generation_8(8)", "execute_context_1(889_790321)_generation_0(0)"],
)
def test_attention_over_a_cache_without_lengths_of_its_tokens(around: str) -> None:
    assert cost("vllm::unified_attention_with_output", *QKV, around=around) is None


@pytest.mark.parametrize(
    "around",
    [
        "execute_context_1(888_788544)_generation_0(0)",
        "execute_1_context_1(sq888sk888sqsq788544sqsk788544)_generation_0(sq0sk0sqsq0sqsk0)",
    ],
)
def test_attention_has_no_cost_in_a_kernel_that_may_have_a_window(around: str) -> None:
    name = "vllm::unified_attention_with_output"
    assert cost(name, *QKV, around=around, grids='[{"name": "kernel_unified_attention_3d", "grid": [8, 1, 16]}]')
    assert cost(name, *QKV, around=around, grids='[{"name": "kernel_unified_attention_2d", "grid": [8, 1, 1]}]') is None


def test_products_of_packed_weights() -> None:
    m, k, n = 16, 256, 512
    plain = 2 * m * n * k
    scaled = cost("_C::cutlass_scaled_mm", (BF16, m, n), (FP8, m, k), (FP8, k, n), ("float", m, 1), ("float", 1, n))
    assert scaled == Cost(plain, m * k + k * n + 4 * (m + n) + 2 * m * n, "matrix", "fp8")
    awq = cost("_C::awq_gemm", (HALF, m, k), (INT, k, n // 8), (HALF, k // 128, n), (INT, k // 128, n // 8))
    assert awq is not None
    assert (awq.flops, awq.dtype) == (plain, "fp16")
    sizes = ["", "", "", "7", str(m), str(n), str(k)]
    marlin = cost("_C::gptq_marlin_gemm", (BF16, m, k), (INT, k // 16, 2 * n), (BF16, 2, n), scalars=sizes)
    assert marlin is not None
    assert marlin.flops == plain
    block = cost("aiter::gemm_a8w8_blockscale", (FP8, m, k), (FP8, n, k), ("float", m, 2), ("float", 4, 2))
    assert block is not None
    assert (block.flops, block.dtype) == (plain, "fp8")
    fp4 = cost("_C::cutlass_scaled_fp4_mm", (BF16, m, n), ("unsigned char", m, k // 2), ("unsigned char", n, k // 2))
    assert fp4 is not None
    assert (fp4.flops, fp4.dtype) == (plain, "fp4")
    assert cost("_C::cutlass_scaled_mm", (BF16, m, n), (FP8, m, k), (FP8, k + 1, n)) is None
    known = sizes_of("aiter::gemm_a8w8_blockscale", json.dumps([[m, k], [n, k]]), json.dumps([FP8, FP8]), "[]")
    assert (known.m, known.n, known.k) == (m, n, k)


def test_a_template_of_a_product_has_the_sizes_that_its_matrices_share() -> None:
    a, b, bias, made = (BF16, 64, 128), (BF16, 128, 32), (BF16, 32), (BF16, 64, 32)
    assert cost("triton_tem_fused_addmm_relu_3", bias, a, b, made) == Cost(
        2 * 64 * 128 * 32, 2 * (32 + 64 * 128 + 128 * 32 + 64 * 32), "matrix", "bf16"
    )
    stored = cost("triton_tem_fused_mm_0", a, (BF16, 32, 128), made)
    assert stored is not None
    assert stored.flops == 2 * 64 * 128 * 32
    assert cost("triton_tem_fused_mm_0", a, (BF16, 31, 128), made) is None


def test_gradients_of_convolutions_by_their_own_arguments() -> None:
    gradient, weight, x = (HALF, 8, 64, 28, 28), (HALF, 64, 32, 3, 3), (HALF, 8, 32, 28, 28)
    flops = 2 * 8 * 64 * 28 * 28 * 32 * 9
    for name, given, size in (("input", weight, "[8, 32, 28, 28]"), ("weight", x, "[64, 32, 3, 3]")):
        found = cost(f"aten::cudnn_convolution_backward_{name}", None, gradient, given, scalars=[size, "", ""])
        assert found == Cost(flops, 2 * 8 * 28 * 28 * (64 + 32) + 2 * 64 * 32 * 9, "matrix", "fp16")


@pytest.mark.parametrize("name", ["aten::_scaled_dot_product_flash_attention", "aten::_flash_attention_forward"])
def test_flash_attention_of_four_sizes_on_rocm(name: str) -> None:
    # Recorded on an MI300X: 8 sequences of 4,096 tokens, 16 heads of size 128. In one of the ops, the heads dimension
    # comes before the sequence dimension.
    heads_first = name.endswith("product_flash_attention")
    qkv = [(BF16, 8, 16, 4096, 128) if heads_first else (BF16, 8, 4096, 16, 128)] * 3
    before = ["", "", ""] if heads_first else ["", "", "", "", "", "4096", "4096"]
    found = cost(name, *qkv, scalars=[*before, "0.", "False", "False", "0.088388347648318433"])
    assert found == Cost(1099511627776, 536870912, "matrix", "bf16")


def test_group_norm_of_aiter() -> None:
    # Recorded on an MI300X.
    found = cost("aiter::_groupnorm_run", (BF16, 1, 128, 256, 256), None, (BF16, 128), (BF16, 128), None)
    assert found == Cost(8 * 128 * 65536, 2 * (2 * 128 * 65536 + 2 * 128), "vector", "bf16")
