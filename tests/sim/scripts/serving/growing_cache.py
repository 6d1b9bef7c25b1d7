"""Generation with a cache that grows token by token."""

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
dev = sys.argv[1]
cfg = GPT2Config(vocab_size=64, n_positions=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=None)
model = GPT2LMHeadModel(cfg).eval().to(dev)
ids = torch.randint(1, 64, (1, 5)).to(dev)
out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=5, do_sample=False, pad_token_id=0)
print("value", *out.cpu().flatten().tolist())
