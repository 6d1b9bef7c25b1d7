"""Training in float32, or in bfloat16 with autocast."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.model.processors import instruction_sets

_WIDTHS = {"small": 256, "large": 768}
_SEQUENCES, _TOKENS = 8, 64
_BF16 = frozenset({"AMX-BF16", "AVX512-BF16", "BF16"})


def build(form: FormName, setting: Setting) -> Form:
    """Return the forward and backward passes of a transformer layer. Its parameters stay float32 in both forms."""
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
    sets = instruction_sets()
    if torch.accelerator.is_available() or sets is None or not _BF16.isdisjoint(sets):
        return None
    return f"this processor has no instructions for bfloat16 ({', '.join(sorted(_BF16))})"


BENCHMARK = Benchmark(
    name="autocast",
    rules=("CFG102", "PRC101"),
    summary="Matmuls in bfloat16 instead of float32",
    build=build,
    sizes=tuple(_WIDTHS),
    traced_size="small",
    script="autocast.py",
    settings="ds_config.json",
    tolerance=0.03,
    tuned_heap=True,
    unavailable=_obstacle,
)
