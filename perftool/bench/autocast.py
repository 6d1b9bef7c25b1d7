"""Training in bfloat16 by autocast against float32."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import nn

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting

# Width of the model; the batch holds 8 sequences of 64 tokens.
_WIDTHS = {"small": 256, "large": 768}
_SEQUENCES, _TOKENS = 8, 64
_CPU_FACTS = Path("/proc/cpuinfo")


def build(form: FormName, setting: Setting) -> Form:
    """Forward and backward pass of a transformer layer, whose parameters stay float32 in both."""
    torch.manual_seed(setting.seed)
    width = _WIDTHS[setting.size]
    layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True).to(setting.device)
    inputs = torch.randn(_SEQUENCES, _TOKENS, width, generator=setting.generator()).to(setting.device)
    latest: list[torch.Tensor] = []

    def precision() -> AbstractContextManager[object]:
        return nullcontext() if form == "naive" else torch.autocast(setting.device.type, torch.bfloat16)

    def run() -> None:
        layer.zero_grad()
        with precision():
            output = layer(inputs)
        output.float().square().mean().backward()
        latest[:] = [output]

    return Form("float32" if form == "naive" else "autocast to bfloat16", run, lambda: latest)


def _obstacle() -> str | None:
    if torch.accelerator.is_available() or not _CPU_FACTS.exists():
        return None
    if {"avx512_bf16", "amx_bf16"} & set(_CPU_FACTS.read_text(encoding="utf-8").split()):
        return None
    return "this processor has no instructions for bfloat16 (AVX512_BF16 or AMX)"


BENCHMARK = Benchmark(
    name="autocast",
    rules=("CFG102", "PRC101"),
    summary="matrix products in bfloat16 instead of float32",
    build=build,
    sizes=tuple(_WIDTHS),
    traced_size="small",
    script="autocast.py",
    settings="ds_config.json",
    tolerance=0.03,
    tuned_heap=True,
    unavailable=_obstacle,
)
