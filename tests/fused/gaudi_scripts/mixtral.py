"""A mixture of experts as Gaudi users write it: the registered op, compiled; without imports of the bridge."""

import torch
import torch.nn.functional as F
from torch import nn


class SparseBlock(nn.Module):
    def __init__(self, size=16, inner=32, experts=4, chosen=2):
        super().__init__()
        self.gate, self.experts, self.chosen = nn.Linear(size, experts, bias=False), experts, chosen
        self.w1, self.w2 = (nn.ParameterList(torch.randn(inner, size) / 4 for _ in range(experts)) for _ in range(2))
        self.w3 = nn.ParameterList(torch.randn(size, inner) / 4 for _ in range(experts))

    def forward(self, hidden_states):
        tokens = hidden_states.view(-1, hidden_states.size(-1))
        weights = F.softmax(self.gate(tokens), dim=1, dtype=torch.float)
        weights, chosen = torch.topk(weights, self.chosen, dim=-1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(tokens.dtype)
        out = torch.ops.hpu.mixture_of_experts(
            hidden_states=tokens,
            expert_routing_table=chosen,
            router_weights=weights,
            w1=list(self.w1),
            w2=list(self.w2),
            w3=list(self.w3),
            permuted_weights=True,
            activation="silu",
            experts_min=0,
            experts_max=self.experts - 1,
        )
        return out.view_as(hidden_states)


def loop(block, x):
    tokens = x.view(-1, x.size(-1))
    weights, chosen = torch.topk(F.softmax(block.gate(tokens), dim=1), block.chosen, dim=-1)
    weights = weights / weights.sum(-1, keepdim=True)
    out = torch.zeros_like(tokens)
    for token, row in enumerate(tokens):
        for weight, expert in zip(weights[token], chosen[token], strict=True):
            inner = F.silu(block.w1[expert] @ row) * (block.w2[expert] @ row)
            out[token] += weight * (block.w3[expert] @ inner)
    return out.view_as(x)


torch.manual_seed(0)
block = SparseBlock().to("hpu").eval()
dense = torch.compile(nn.Sequential(nn.Linear(16, 16), nn.GELU()).to("hpu"), backend="hpu_backend")
with torch.no_grad():
    x = dense(torch.randn(2, 5, 16, device="hpu"))
    torch.testing.assert_close(block(x), loop(block, x), rtol=1e-4, atol=1e-5)
torch.hpu.synchronize()
print("routed", tuple(x.shape), x.device == torch.device("hpu"))
