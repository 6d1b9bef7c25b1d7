"""What devices attain, and what the names of kernels say."""

from __future__ import annotations

import pytest

from perftool.model.devices import known_devices
from perftool.model.shortfalls import attainable, generation_of, shortfalls, tile_of
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
    ],
)
def test_tiles_by_name(kernel: str, rows: int, columns: int) -> None:
    found = tile_of(kernel)

    assert found is not None
    assert found[1:] == (rows, columns)


def test_generations_by_name() -> None:
    assert generation_of("sm90_xmma_gemm_bf16") == 90
    assert generation_of("void cutlass::Kernel<cutlass_80_tensorop>") == 80
    assert generation_of("ampere_bf16_s16816gemm") == 80
    assert generation_of("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits>") == 80
    assert generation_of("volta_sgemm_64x64_tn") == 70
    assert generation_of("void at::native::elementwise_kernel") is None
