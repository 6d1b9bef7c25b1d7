"""A tagger on packed sequences."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.manual_seed(0)
dev = torch.device(sys.argv[1])


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 8)
        self.rnn = nn.GRU(8, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(12, 5)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.emb(x), lengths.cpu(), batch_first=True, enforce_sorted=False)
        y, h = self.rnn(packed)
        y, _ = pad_packed_sequence(y, batch_first=True)
        return self.out(y)


model = Tagger().to(dev)
opt = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(3):
    x, lengths = torch.randint(0, 30, (4, 7)).to(dev), torch.tensor([5, 7, 3, 7]).to(dev)
    logits = model(x, lengths)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), x.flatten() % 5)
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.5)
    opt.step()
    opt.zero_grad()
    htcore.mark_step()
    print("value", loss.item())
