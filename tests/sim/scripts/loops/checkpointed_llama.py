"""A Llama with gradient checkpointing and clipping."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
dev = torch.device(sys.argv[1])
cfg = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=48,
    max_position_embeddings=32,
)
model = LlamaForCausalLM(cfg).to(dev)
model.train()
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
ids = torch.randint(0, 64, (2, 12)).to(dev)
for _ in range(3):
    out = model(input_ids=ids, labels=ids, use_cache=False)
    out.loss.backward()
    htcore.mark_step()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    opt.zero_grad(set_to_none=True)
    htcore.mark_step()
    print("value", out.loss.item())
