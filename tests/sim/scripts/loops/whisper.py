"""Speech to text, with encoder and decoder."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

torch.manual_seed(0)
dev = sys.argv[1]
cfg = WhisperConfig(
    vocab_size=64,
    num_mel_bins=8,
    encoder_layers=1,
    decoder_layers=1,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    d_model=32,
    encoder_ffn_dim=48,
    decoder_ffn_dim=48,
    max_source_positions=20,
    max_target_positions=16,
    decoder_start_token_id=1,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    dropout=0.0,
    begin_suppress_tokens=None,
    suppress_tokens=None,
)
model = WhisperForConditionalGeneration(cfg).to(dev).train()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    x, y = torch.randn(2, 8, 40).to(dev), torch.randint(3, 64, (2, 6)).to(dev)
    loss = model(input_features=x, labels=y).loss
    loss.backward()
    htcore.mark_step()
    opt.step()
    opt.zero_grad()
    htcore.mark_step()
    print("value", loss.item())
