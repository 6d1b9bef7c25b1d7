"""A small transformer with experts learns equally well with fused ops and with their plain forms."""

from __future__ import annotations

import pytest
import torch
from definitions import mixture
from torch import nn
from torch.nn import functional as F

from perftool.fused import FusedAdamW, FusedSDPA, mixture_of_experts
from perftool.fused.attention import formula as attention

VOCABULARY, WIDTH, HEADS, EXPERTS, TOKENS = 12, 16, 2, 4, 10


class Transformer(nn.Module):
    """A single layer: causal attention, then two of four experts for each token."""

    def __init__(self, fused):
        super().__init__()
        torch.manual_seed(0)
        self.fused = fused
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.place = nn.Embedding(TOKENS, WIDTH)
        self.project, self.router = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, EXPERTS)
        self.gate, self.up, self.down = (
            nn.ParameterList([nn.Parameter(torch.randn(WIDTH, WIDTH) / 4) for _ in range(EXPERTS)]) for _ in range(3)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.embed(tokens) + self.place(torch.arange(TOKENS))
        q, k, v = self.project(x).view(len(tokens), TOKENS, 3 * HEADS, -1).transpose(1, 2).chunk(3, dim=1)
        attend = FusedSDPA.apply if self.fused else lambda q, k, v, *rest: attention(q, k, v, None, True)[0]
        x = x + attend(q, k, v, None, 0.0, True).transpose(1, 2).reshape(x.shape)
        flat = x.reshape(-1, WIDTH)
        weights, table = self.router(flat).softmax(-1).topk(2, dim=-1)
        experts = [[*part] for part in (self.gate, self.up, self.down)]
        if self.fused:
            mixed = mixture_of_experts(flat, table, weights, *experts, False, "silu", 0, EXPERTS - 1)
        else:
            mixed = mixture(flat, table, weights, *experts, "silu")
        return self.head(x + mixed.view(x.shape))


def copying_task(seed):
    """Sequences whose second half repeats the first, so that attention can learn to copy it."""
    half = torch.randint(VOCABULARY, (16, TOKENS // 2), generator=torch.Generator().manual_seed(seed))
    return torch.cat([half, half], dim=1)


def losses(model, optimizer, steps):
    found = []
    for seed in range(steps):
        tokens = copying_task(seed)
        prediction = model(tokens)[:, TOKENS // 2 - 1 : -1]
        loss = F.cross_entropy(prediction.flatten(0, 1), tokens[:, TOKENS // 2 :].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def test_fused_and_plain_ops_learn_alike():
    fused, plain = Transformer(fused=True).double(), Transformer(fused=False).double()
    ours = losses(fused, FusedAdamW(fused.parameters(), lr=0.01, eps=1e-14), 150)
    theirs = losses(plain, torch.optim.AdamW(plain.parameters(), lr=0.01, eps=1e-14, weight_decay=0.0), 150)
    assert ours == pytest.approx(theirs, rel=1e-5)
    assert sum(ours[-10:]) / 10 < 0.5 * ours[0]
