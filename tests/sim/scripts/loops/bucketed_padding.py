"""Texts of different lengths, padded to multiples of eight."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

torch.manual_seed(0)
dev = torch.device(sys.argv[1])
texts = [torch.randint(1, 50, (n,)) for n in (3, 9, 5, 14, 7, 12, 4, 16)]


def collate(batch):
    longest = max(len(t) for t in batch)
    size = -(-longest // 8) * 8
    ids = torch.zeros(len(batch), size, dtype=torch.long)
    for row, t in enumerate(batch):
        ids[row, : len(t)] = t
    return ids, ids != 0


emb, head = torch.nn.Embedding(50, 16, padding_idx=0).to(dev), torch.nn.Linear(16, 50).to(dev)
params = list(emb.parameters()) + list(head.parameters())
opt = torch.optim.SGD(params, lr=0.1, momentum=0.9)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 8)
for epoch in range(2):
    for ids, mask in DataLoader(texts, batch_size=2, collate_fn=collate):
        ids, mask = ids.to(dev), mask.to(dev)
        logits = head(emb(ids))
        loss = (F.cross_entropy(logits.transpose(1, 2), ids, reduction="none") * mask).sum() / mask.sum()
        opt.zero_grad()
        loss.backward()
        htcore.mark_step()
        opt.step()
        sched.step()
        htcore.mark_step()
        print("value", loss.item())
