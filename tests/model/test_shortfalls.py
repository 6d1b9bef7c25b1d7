"""What share of its peak rates a device can reach, and what kernel names mean."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import pytest

from perftool.model.devices import known_devices
from perftool.model.shortfalls import Attainable, attainable, generation_of, parts_of, shortfalls, tile_of
from perftool.op_costs.model import KINDS


def share(device: str, kind: str, dtype: str | None = None) -> float:
    found = attainable(device, kind, dtype)
    assert found is not None
    return found.share


def test_the_first_entry_that_fits_counts() -> None:
    assert share("NVIDIA A100-SXM4-40GB", "product", "bf16") == 0.87
    assert share("NVIDIA A100-PCIE-40GB", "product", "fp16") == 0.81
    assert share("NVIDIA A100-SXM4-40GB", "product", "tf32") == 0.75
    assert share("Tesla T4", "product", "fp16") == 0.75
    assert share("AMD Instinct MI210", "memory") == 0.85
    assert attainable("NVIDIA H200", "pointwise", "bf16") is None


def test_every_entry_is_a_share_with_a_source_and_names_kinds_and_devices_that_exist() -> None:
    names = [device.name for device in known_devices()]
    for entry in shortfalls().attainable:
        assert 0 < entry.share < 1
        assert entry.source
        assert set(entry.kinds) <= {*KINDS, "memory"}
        assert any(attainable(name, kind, dtype) is entry for name in names for kind in entry.kinds
                   for dtype in (entry.dtypes or (None,))), entry  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "rows", "columns"),
    [
        ("Cijk_Alik_Bljk_BBS_BH_UserArgs_MT256x192x64_MI16x16x1_SN", 256, 192),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x256x64_warpgroupsize1x1x1", 128, 256),
        ("nvjet_tst_144x128_64x6_2x1_v_bz_bias_TNN", 144, 128),
        ("ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_tn", 256, 128),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>", 256, 64),
        ("volta_sgemm_128x64_nn", 128, 64),
        ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x32x64_wt32x32x8_ws1x1", 128, 32),
    ],
)
def test_tiles_by_name(kernel: str, rows: int, columns: int) -> None:
    found = tile_of(kernel)

    assert found is not None
    assert found[1:] == (rows, columns)


_MEASURED = re.compile(r"^([\d.,]+) of ([\d.,]+) TFLOP/s: ")


@pytest.mark.parametrize(
    "entry", [one for one in shortfalls().attainable if _MEASURED.match(one.source)], ids=lambda one: one.source
)
def test_a_measured_share_is_of_the_peak_in_devices_toml(entry: Attainable) -> None:
    found = _MEASURED.match(entry.source)
    assert found is not None
    reached, peak = (float(number.replace(",", "")) for number in found.groups())
    peaks = [
        one.rate / 1e12
        for device in known_devices() if any(fnmatchcase(device.name, pattern) for pattern in entry.devices)
        for one in device.peaks if one.dtype in entry.dtypes and one.unit == "matrix"
    ]  # fmt: skip

    assert peaks
    assert peaks == pytest.approx([peak] * len(peaks), rel=0.01)
    assert entry.share == pytest.approx(reached / peak, abs=0.01)


def test_generations_by_name() -> None:
    assert generation_of("sm90_xmma_gemm_bf16") == 90
    assert generation_of("void cutlass::Kernel<cutlass_80_tensorop>") == 80
    assert generation_of("ampere_bf16_s16816gemm") == 80
    assert generation_of("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits>") == 80
    assert generation_of("volta_sgemm_64x64_tn") == 70
    assert generation_of("void at::native::elementwise_kernel") is None


def test_the_parts_of_an_inner_dimension_by_name() -> None:
    assert parts_of("Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_GRVWn1_GSU2_GSUAMB_GLS0") == 2
    assert parts_of("Cijk_Ailk_Bljk_BBS_BH_MT128x64x64_GRVWn1_GSU1_GSUASB_GLS0") == 1
    assert parts_of("Cijk_Alik_Bljk_BBS_BH_MT256x192x64_GSU0_GSUAMB") == 1
    assert parts_of("ampere_bf16_s16816gemm_bf16_256x128") == 1


def test_unexplained_ops_get_advice_by_their_bound() -> None:
    bounds = [rest.bound for rest in shortfalls().unexplained]
    assert bounds == sorted(set(bounds))
    assert set(bounds) <= {"compute", "memory"}
