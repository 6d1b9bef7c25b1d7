"""Results are the same on every processor. Variables of torch and oneDNN make this processor act like older ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

LESSER = {
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "default": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"},
}

PROGRAM = """
import json, torch
from perftool.fused import FusedAdamW, FusedLamb, FusedSDPA, FusedSGD
found = {}
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
    for case, expected in here.items():
        assert there[case] == pytest.approx(expected, rel=2e-2 if "attention" in case else 1e-5), case
