"""Reports that compare ops with the peak rates of the device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perftool.model.efficiency import AssumedPeak, Efficiency, OpRate
from perftool.model.unmodelled import why_no_model
from perftool.reporters.efficiency import best_text, efficiency_notes, rate_text, shapes_text
from perftool.reporters.html.roofline import roofline_chart

PRODUCT = OpRate("aten::mm", "op", "compute", "product", "[[8,4],[4,2],[]]", None, 2, 1e9, 1e6, 1000, 500.0, 0.5,
                 "compute", 0.5)  # fmt: skip
COPY = replace(PRODUCT, name="aten::copy_", kind="copy", flops=0.0, tflops=0.0, bound="memory")
PEAK = AssumedPeak("H", "bf16", "matrix", 1000e12, 1e12, "datasheet", False)
TOLD = Efficiency((PRODUCT, COPY), (PEAK,), 2000, 1000, 500.0, "")


def test_the_shown_rate_is_the_limiting_one() -> None:
    assert (rate_text(PRODUCT), rate_text(COPY)) == ("500.0 TFLOP/s", "0.50 TB/s")
    slow = replace(PRODUCT, tflops=0.03), replace(COPY, tbytes=0.004)
    assert tuple(map(rate_text, slow)) == ("30.0 GFLOP/s", "4.00 GB/s")
    assert best_text(PRODUCT) == "50.0 % (compute)"
    assert best_text(replace(PRODUCT, roofline_ratio=None)) == ""
    assert best_text(replace(PRODUCT, roofline_ratio=None, bytes=None)) == "arguments not recorded"
    assert best_text(replace(PRODUCT, roofline_ratio=1.24)) == "faster than modelled"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"source": "graph"}, "captured graph without shapes"),
        (
            {"source": "graph", "name": "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu"},
            "captured graph without shapes (bf16 by mxfp4, tiles of 16 x 128 x 256)",
        ),
        ({"name": "vllm::moe_forward"}, "weight sizes not recorded"),
        ({"source": "recipe"}, "recipe without shapes"),
        ({"source": "kernel"}, "not launched by an op"),
        # Each letter of this name used to be tried as the end of each dtype.
        ({"source": "kernel", "name": "_matmul_ogs_N_" + "x_" * 4000}, "not launched by an op"),
        ({"input_dims": None}, "shapes not recorded"),
        ({"kind": None}, "no cost model for this op"),
        ({}, "arguments not recorded"),
        ({"kind": "collective"}, ""),
    ],
)
def test_a_row_without_a_model_says_why(changes: dict[str, str | None], why: str) -> None:
    assert why_no_model(replace(PRODUCT, roofline_ratio=None, bytes=None, **changes)) == why


@pytest.mark.parametrize(
    ("dims", "text"),
    [
        ("[[8,4],[4,2],[]]", "8x4, 4x2"),
        (None, ""),
        ('[["s0",4]]', "s0x4"),
        ("[[[4],[4]],[]]", "…"),
        ("{", ""),
        ("3", ""),
    ],
)
def test_shapes_in_words(dims: str | None, text: str) -> None:
    assert shapes_text(replace(PRODUCT, input_dims=dims)) == text


def test_the_peaks_that_were_assumed_are_named() -> None:
    assert efficiency_notes(TOLD) == [
        "The peak is known for 1.00 us of 2.00 us of work: at the peak, that work would take 500 ns, 50.0 % of the "
        "measured time",
        "Assumed for H: bf16 1,000.0 TFLOP/s, 1.00 TB/s (datasheet)",
    ]
    lacking = Efficiency((PRODUCT,), (), 2000, 0, None, "Shapes are not recorded.")
    assert efficiency_notes(lacking) == ["Shapes are not recorded."]


def test_the_roofline_bends_where_compute_becomes_the_limit() -> None:
    chart = roofline_chart(TOLD)
    assert chart is not None
    (point,), (roof,) = chart.points, chart.roofs
    # With 1000 operations per byte, the point is right of the ridge and below the roof.
    assert point.x == roof.x2
    assert point.y > roof.y2
    assert (chart.left_out, point.kind) == (1, "kernel")
    assert "50.0 % (compute)" in point.tip


def test_an_empty_roofline_draws_nothing() -> None:
    assert roofline_chart(replace(TOLD, ops=(COPY,))) is None
    assert roofline_chart(replace(TOLD, peaks=())) is not None
