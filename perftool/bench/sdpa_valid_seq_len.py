"""Attention over a padded batch: with a mask that hides the padding, or with lengths that skip it."""

from __future__ import annotations

import torch
from torch.nn import functional

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.attention import heads_of, spread_lengths
from perftool.fused import FusedSDPA

_TITLES = {
    "naive": "a mask per sample",
    "advised": "FusedSDPA with valid_seq_len",
    "torch": "F.scaled_dot_product_attention for each sample",
}
# Sequences in a batch, and tokens in each, including the padding on the right.
_SHAPES = {"small": (8, 256), "large": (8, 1024)}


def build(form: FormName, setting: Setting) -> Form:
    """scaled_dot_product_attention with a mask per sample, FusedSDPA with valid_seq_len, or a call for each sample."""
    batch, tokens = _SHAPES[setting.size]
    q, k, v = heads_of(setting, batch, tokens)
    lengths = spread_lengths(batch, tokens)
    valid = (torch.arange(tokens) < lengths[:, None]).to(setting.device)
    causal = torch.ones(tokens, tokens, dtype=torch.bool, device=setting.device).tril()
    mask = valid[:, None, None, :] & causal
    latest: list[torch.Tensor] = []

    @torch.no_grad()
    def run() -> None:
        if form == "naive":
            output = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        elif form == "advised":
            output = _fused(q, k, v, lengths)
        else:
            output = _one_by_one(q, k, v, lengths.tolist())
        latest[:] = [output]

    def result() -> list[torch.Tensor]:
        # The padding differs between forms, which does not matter.
        return [output.masked_fill(~valid[:, None, :, None], 0.0) for output in latest]

    return Form(_TITLES[form], run, result)


def _fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    output = FusedSDPA.apply(q, k, v, None, 0.0, True, None, "None", None, lengths, "right")
    assert isinstance(output, torch.Tensor)
    return output


def _one_by_one(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    output = torch.zeros_like(q)
    for sample, length in enumerate(lengths):
        query, key, value = (each[sample, :, :length] for each in (q, k, v))
        output[sample, :, :length] = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    return output


BENCHMARK = Benchmark(
    name="sdpa_valid_seq_len",
    rules=("FUS106",),
    summary="Attention that skips padding by the sequences' lengths instead of masking it",
    build=build,
    sizes=tuple(_SHAPES),
    traced_size="small",
    tolerance=1e-5,
    tuned_heap=True,
    torch_best=True,
)
