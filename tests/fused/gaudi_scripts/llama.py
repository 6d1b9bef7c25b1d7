"""A small Llama as Gaudi users write it: fused attention, RMS norm and rotary embeddings; generation."""

import habana_frameworks.torch.core as htcore
import habana_frameworks.torch.hpu as hthpu
import torch
from torch import nn

try:
    from habana_frameworks.torch.hpex.kernels import RotaryPosEmbeddingHelperV2 as FusedRoPE
except ImportError:
    print("Not using HPU fused kernel for apply_rotary_pos_emb")
    FusedRoPE = None

try:
    from habana_frameworks.torch.hpex.normalization import FusedRMSNorm
except ImportError:
    print("Not using HPU fused kernel for RMSNorm")
    FusedRMSNorm = None

try:
    from habana_frameworks.torch.hpex.kernels import FusedSDPA
except ImportError:
    print("Not using HPU fused scaled dot-product attention kernel.")
    FusedSDPA = None

from habana_frameworks.torch.hpex.optimizers import FusedAdamW


class RMSNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), 1e-6

    def forward(self, x):
        if x.dtype != self.weight.dtype:
            return FusedRMSNorm.apply(x.to(self.weight.dtype), self.weight, self.eps).to(x.dtype)
        return FusedRMSNorm.apply(x, self.weight, self.eps)


class ModuleFusedSDPA(nn.Module):
    def __init__(self, fusedSDPA):
        super().__init__()
        self._hpu_kernel_fsdpa = fusedSDPA

    def forward(self, query, key, value, attn_mask, dropout_p, is_causal, scale, softmax_mode):
        return self._hpu_kernel_fsdpa.apply(query, key, value, attn_mask, dropout_p, is_causal, scale, softmax_mode)


class Attention(nn.Module):
    def __init__(self, size, heads, groups):
        super().__init__()
        self.heads, self.groups, self.head = heads, groups, size // heads
        self.q, self.o = nn.Linear(size, size, bias=False), nn.Linear(size, size, bias=False)
        self.k, self.v = (nn.Linear(size, groups * self.head, bias=False) for _ in range(2))
        self.attend = ModuleFusedSDPA(FusedSDPA)

    def forward(self, x, cos, sin, position_ids):
        batch, tokens, _ = x.shape
        q = self.q(x).view(batch, tokens, self.heads, self.head).transpose(1, 2)
        k, v = (each(x).view(batch, tokens, self.groups, self.head).transpose(1, 2) for each in (self.k, self.v))
        cos, sin = (each[None, None].to(x.dtype) for each in (cos, sin))
        q, k = FusedRoPE.apply(q, cos, sin, position_ids), FusedRoPE.apply(k, cos, sin, position_ids)
        out = self.attend(q, k, v.to(q.dtype), None, 0.0, True, None, "None")
        return self.o(out.transpose(1, 2).reshape(batch, tokens, -1))


class Llama(nn.Module):
    def __init__(self, vocabulary=32, size=32, heads=4, groups=2, layers=2, places=64):
        super().__init__()
        self.words, self.norm = nn.Embedding(vocabulary, size), RMSNorm(size)
        self.attention = nn.ModuleList(Attention(size, heads, groups) for _ in range(layers))
        self.norms = nn.ModuleList(RMSNorm(size) for _ in range(2 * layers))
        self.up, self.down = nn.Linear(size, 64), nn.Linear(64, size)
        angles = torch.outer(torch.arange(places).float(), 1e4 ** -(torch.arange(0, size // heads, 2) * heads / size))
        for name, table in (("cos", angles.cos()), ("sin", angles.sin())):
            self.register_buffer(name, torch.cat((table, table), -1), persistent=False)

    def forward(self, ids):
        positions = torch.arange(ids.size(1), device=ids.device).expand_as(ids)
        x = self.words(ids)
        for index, attention in enumerate(self.attention):
            x = x + attention(self.norms[2 * index](x), self.cos, self.sin, positions)
            x = x + self.down(torch.nn.functional.silu(self.up(self.norms[2 * index + 1](x))))
        return self.norm(x) @ self.words.weight.T


def main():
    torch.manual_seed(0)
    htcore.hpu_set_env()
    device = torch.device("hpu")
    model = Llama().to(device)
    optimizer = FusedAdamW(model.parameters(), lr=5e-3, weight_decay=0.1)
    data = (torch.arange(17)[None] + torch.arange(8)[:, None]).remainder(32).to("hpu")
    losses = []
    for _ in range(8):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("hpu", dtype=torch.bfloat16), hthpu.sdp_kernel(enable_recompute=True):
            scores = model(data[:, :-1])
        loss = torch.nn.functional.cross_entropy(scores.float().flatten(0, 1), data[:, 1:].flatten())
        loss.backward()
        htcore.mark_step()
        optimizer.step()
        htcore.mark_step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses
    model = model.eval()
    model = htcore.hpu_inference_initialize(model) or model
    ids = data[:1, :8]
    with torch.inference_mode():
        for _ in range(4):
            ids = torch.cat((ids, model(ids)[:, -1:].argmax(-1)), 1)
            htcore.mark_step()
    print("generated", tuple(ids.shape))


if __name__ == "__main__":
    main()
