"""A graph network built on scatter ops: attention over the edges of each node, means of neighbours, node masks."""

import sys

import habana_frameworks.torch.core as htcore
import torch
import torch.nn.functional as F
from torch import nn

dev = sys.argv[1]
torch.manual_seed(0)
NODES, EDGES = 40, 160


def softmax_by_node(x, node):
    index = node[:, None].expand_as(x)
    start = torch.full((NODES, x.shape[1]), float("-inf"), device=x.device)
    largest = start.scatter_reduce(0, index, x, "amax", include_self=True)
    e = (x - largest[node]).exp()
    return e / torch.zeros_like(largest).scatter_add(0, index, e)[node]


class Attention(nn.Module):
    def __init__(self, inputs, outputs, heads):
        super().__init__()
        self.heads, self.project = heads, nn.Linear(inputs, outputs * heads, bias=False)
        self.score = nn.Parameter(torch.randn(heads, 2 * outputs) * 0.1)

    def forward(self, x, source, target):
        h = self.project(x).view(NODES, self.heads, -1)
        scores = F.leaky_relu((torch.cat([h[source], h[target]], -1) * self.score).sum(-1), 0.2)
        weighted = softmax_by_node(scores, target)[..., None] * h[source]
        return torch.zeros_like(h).index_add(0, target, weighted).flatten(1)


class Mean(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own, self.others = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)

    def forward(self, x, source, target):
        degree = torch.bincount(target, minlength=NODES).clamp(min=1)
        total = torch.zeros_like(x).scatter_add_(0, target[:, None].expand(-1, x.shape[1]), x[source])
        return self.own(x) + self.others(total / degree[:, None])


source, target = torch.randint(0, NODES, (2, EDGES)).to(dev)
first, second = Attention(12, 8, 2).to(dev), Mean(16, 5).to(dev)
x, y = torch.randn(NODES, 12).to(dev), torch.randint(0, 5, (NODES,)).to(dev)
train = (torch.rand(NODES) < 0.6).to(dev)
optimizer = torch.optim.RMSprop([*first.parameters(), *second.parameters()], lr=0.01)
for _ in range(3):
    out = second(F.elu(first(x, source, target)), source, target)
    loss = F.nll_loss(out.log_softmax(-1)[train], y[train])
    optimizer.zero_grad()
    loss.backward()
    htcore.mark_step()
    optimizer.step()
    htcore.mark_step()
    print("value", loss.item())
with torch.no_grad():
    print("value", (out.argmax(-1)[~train] == y[~train]).float().mean().item())
