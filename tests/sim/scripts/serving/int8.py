"""Weights and activations in eight bits, and a cast to eight-bit floats."""

import sys

import habana_frameworks.torch.core as htcore
import torch

torch.manual_seed(0)
dev = sys.argv[1]
w = torch.randn(16, 8).to(dev)
x = torch.randn(4, 8).to(dev)


def quantise(t):
    scale = t.abs().amax(dim=-1, keepdim=True) / 127
    return (t / scale).round().clamp(-128, 127).to(torch.int8), scale


qw, sw = quantise(w)
qx, sx = quantise(x)
y = (qx.to(torch.int32).unsqueeze(1) * qw.to(torch.int32).unsqueeze(0)).sum(-1).float() * sx * sw.T
z = torch.nn.functional.linear(qx.to(torch.bfloat16), qw.to(torch.bfloat16)).float() * sx * sw.T
htcore.mark_step()
print("value", (y - x @ w.T).abs().max().item(), z.sum().item(), int((qx.view(torch.uint8) & 1).sum()))
f8 = x.to(torch.float8_e4m3fn).to(torch.float32)
print("value", f8.sum().item(), (qx.long() << 2).sum().item())
