"""Generation with a cache of fixed size; the library's loop still lets the text grow."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
dev = sys.argv[1]
cfg = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=48,
    max_position_embeddings=64,
    pad_token_id=0,
    eos_token_id=None,
)
model = LlamaForCausalLM(cfg).eval().to(dev)
ids = torch.randint(1, 64, (2, 8)).to(dev)
with torch.no_grad():
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False, cache_implementation="static"
    )
print("value", *out.cpu().flatten().tolist())
