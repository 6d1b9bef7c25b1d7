"""Masked-token pretraining as Gaudi users write it: FusedLamb, FusedClipNorm, accumulation, one rank per card."""

import argparse
import os
import tempfile

import habana_frameworks.torch.core as htcore
import torch
import torch.distributed as dist
from habana_frameworks.torch.distributed.hccl import initialize_distributed_hpu
from habana_frameworks.torch.hpex.normalization import FusedClipNorm
from habana_frameworks.torch.hpex.optimizers import FusedLamb
from habana_frameworks.torch.utils.library_loader import load_habana_module

VOCABULARY, MASK = 40, 0


class Bert(torch.nn.Module):
    def __init__(self, size=32, tokens=16):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(VOCABULARY, size), torch.nn.Embedding(tokens, size)
        layer = torch.nn.TransformerEncoderLayer(size, 4, 64, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(size, VOCABULARY)

    def forward(self, ids, labels):
        places = torch.arange(ids.size(1), device=ids.device)
        scores = self.head(self.layers(self.words(ids) + self.places(places)))
        return torch.nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-100)


def batches(count, device):
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        start = torch.randint(1, VOCABULARY - 17, (8, 1), generator=generator)
        ids = start + torch.arange(16)
        hidden = torch.rand(ids.shape, generator=generator) < 0.2
        labels = ids.masked_fill(~hidden, -100)
        yield ids.masked_fill(hidden, MASK).to(device, non_blocking=True), labels.to(device, non_blocking=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_steps", type=int, default=12)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
    args = parser.parse_args()
    load_habana_module()
    world_size, rank, _ = initialize_distributed_hpu()
    device = torch.device("hpu")
    if os.environ.get("MASTER_ADDR"):
        dist.init_process_group("hccl", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    model = Bert().to(device)
    decayed = [param for param in model.parameters() if param.dim() > 1]
    others = [param for param in model.parameters() if param.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    optimizer = FusedLamb(groups, lr=0.05, max_grad_norm=None)
    clip = FusedClipNorm(model.parameters(), 1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - 0.5 * step / args.max_steps)
    losses = []
    for step, (ids, labels) in enumerate(batches(args.max_steps * args.gradient_accumulation_steps, device)):
        with torch.autocast(device_type="hpu", dtype=torch.bfloat16):
            loss = model(ids, labels)
        (loss / args.gradient_accumulation_steps).backward()
        htcore.mark_step()
        if (step + 1) % args.gradient_accumulation_steps == 0:
            clip.clip_norm(model.parameters())
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            htcore.mark_step()
            losses.append(loss.item())
    with tempfile.TemporaryDirectory() as folder:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"{folder}/checkpoint.pt")
        saved = torch.load(f"{folder}/checkpoint.pt", map_location="hpu")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    assert min(losses[-3:]) < losses[0], losses
    print("trained", rank, world_size)


if __name__ == "__main__":
    main()
