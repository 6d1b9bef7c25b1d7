"""Click prediction from bags of categories and their interactions; the area under the curve on the host."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from torch import nn

dev = sys.argv[1]
torch.manual_seed(0)
SIZES, ROWS = (50, 30, 20), 8


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(n, 8, mode=m) for n, m in zip(SIZES, ("sum", "mean", "sum")))
        self.bottom = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(8 + 6, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense, indices, offsets, weights):
        x = self.bottom(dense)
        given = [weights, None, None]
        found = [b(i, o, per_sample_weights=w) for b, i, o, w in zip(self.bags, indices, offsets, given)]
        vectors = torch.stack([x, *found], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        row, column = torch.tril_indices(4, 4, -1, device=vectors.device)
        return self.top(torch.cat([x, products[:, row, column]], 1)).squeeze(1)


model = Recommender().to(dev)
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
scores, labels = [], []
for step in range(4):
    indices, offsets = [], []
    for n in SIZES:
        lengths = torch.randint(1, 4, (ROWS,))
        indices.append(torch.randint(0, n, (int(lengths.sum()),)).to(dev))
        offsets.append((lengths.cumsum(0) - lengths).to(dev))
    weights, target = torch.rand(len(indices[0])), torch.randint(0, 2, (ROWS,)).float()
    out = model(torch.rand(ROWS, 5).log1p().to(dev), indices, offsets, weights.to(dev))
    loss = nn.functional.binary_cross_entropy_with_logits(out, target.to(dev))
    optimizer.zero_grad()
    loss.backward()
    htcore.mark_step()
    optimizer.step()
    htcore.mark_step()
    print("value", loss.item())
    scores.append(out.detach().sigmoid().cpu())
    labels.append(target)
ranks = torch.cat(scores).argsort().argsort() + 1.0
clicked = torch.cat(labels) == 1
n = clicked.sum()
print("value", ((ranks[clicked].sum() - n * (n + 1) / 2) / (n * (~clicked).sum())).item())
