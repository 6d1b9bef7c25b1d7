"""The same results on every processor: this one, told to be a lesser one by the variables of torch and oneDNN."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from torch.nn import functional as F

from perftool.fused import FusedSDPA
from perftool.fused.attention import capability, sdpa
from perftool.fused.attention.request import read_request

LESSER = {
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "default": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"},
}

PROGRAM = """
import json, torch
from perftool.fused import FusedAdamW, FusedLamb, FusedSDPA, FusedSGD
from perftool.fused.attention.capability import multiplies_well
found = {"well": multiplies_well(torch.bfloat16)}
for causal in (True, False):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 300, 16, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    out = FusedSDPA.apply(q, k, v, None, 0.0, causal)
    out.float().square().sum().backward()
    found[f"attention {causal}"] = [each.float().norm().item() for each in (out, q.grad, k.grad, v.grad)]
for make in (FusedAdamW, FusedLamb, lambda params: FusedSGD(params, 0.1, 0.9)):
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(shape)) for shape in ((7,), (100, 100), (3, 5))]
    optimizer = make(params)
    for _ in range(3):
        for param in params:
            param.grad = torch.randn(param.shape)
        optimizer.step()
    found[type(optimizer).__name__] = [param.norm().item() for param in params]
print(json.dumps(found))
"""


def results(**lesser):
    environment = {**os.environ, **lesser, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def here():
    return results()


@pytest.mark.parametrize("name", LESSER)
def test_a_lesser_processor_computes_the_same(name, here):
    there = results(**LESSER[name])
    assert there.pop("well") is False
    for case, expected in here.items():
        if case != "well":
            assert there[case] == pytest.approx(expected, rel=2e-2 if "attention" in case else 1e-5), case


def algorithm(dtype, tokens, causal, training, **asked):
    q = torch.zeros(1, 64, tokens, 8, dtype=dtype, requires_grad=training)
    asked = {"mask": None, "dropout": 0.0, **asked}
    request = read_request(
        q, q, q, asked["mask"], asked["dropout"], causal, None, "None", True, None, "left", False, False
    )
    return sdpa.fast_algorithm(q, q, request)


@pytest.mark.parametrize("tokens", [16, 300, 2000])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_only_a_processor_that_multiplies_bfloat16_takes_an_algorithm_of_ours(monkeypatch, tokens, causal, training):
    case = (torch.bfloat16, tokens, causal, training)
    monkeypatch.setattr(sdpa, "multiplies_well", lambda dtype: False)
    assert algorithm(*case) == "torch"
    monkeypatch.setattr(sdpa, "multiplies_well", lambda dtype: True)
    assert algorithm(*case) in ("tiled", "saved")
    assert algorithm(torch.float32, tokens, causal, training) == "torch"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("added", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_float32_products_stand_in_for_narrow_ones(monkeypatch, dtype, added, causal):
    torch.manual_seed(0)
    tensors = [torch.randn(2, 4, 40, 16, dtype=dtype, requires_grad=True) for _ in range(3)]
    mask = torch.randn(40, 40, dtype=dtype) if added else torch.rand(40, 40) > 0.2
    whole = mask.float() if added else torch.zeros(40, 40).masked_fill(~mask, float("-inf"))
    if causal:
        whole = whole + torch.full((40, 40), float("-inf")).triu(1)
    expected = F.scaled_dot_product_attention(*(each.float() for each in tensors), whole)
    monkeypatch.setattr(sdpa, "multiplies_well", lambda dtype: dtype in (torch.float32, torch.float64))
    out = FusedSDPA.apply(*tensors, mask, 0.0, causal)
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), expected.nan_to_num(), rtol=2e-2, atol=2e-2)
    out.float().sum().backward()
    assert all(each.grad.dtype == dtype for each in tensors)


def test_a_torch_that_cannot_be_asked_multiplies_bfloat16_badly(monkeypatch):
    monkeypatch.setattr(torch.ops, "mkldnn", object(), raising=False)
    assert capability._bfloat16_is_slow()
