"""`train.py` after following the advice of its report; the changes are marked.

habana_perf_tool simulate examples/simulate/train_fixed.py
"""

import time

import habana_frameworks.torch.core as htcore
import torch
from habana_frameworks.torch.hpex.optimizers import FusedAdamW
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

VOCABULARY, WIDTH, HEADS, LAYERS, CLASSES = 1000, 128, 4, 2, 4
EXAMPLES, BATCH, EPOCHS = 500, 8, 1
LENGTH = 64


class Reviews(Dataset):
    """Texts of four lengths, each with a label."""

    def __len__(self):
        return EXAMPLES

    def __getitem__(self, index):
        time.sleep(0.0005)  # stands in for reading and tokenising a text
        generator = torch.Generator().manual_seed(index)
        # Texts are sorted by length, as if a sampler had grouped texts of similar length.
        length = 16 * (1 + index * 4 // EXAMPLES)
        words = torch.randint(1, VOCABULARY, (length,), generator=generator)
        return words, int(words[0]) % CLASSES


def collate(samples):
    """Pad to one length for all batches (RCP101, RCP102)."""
    words = torch.stack([F.pad(words, (0, LENGTH - len(words))) for words, _ in samples])
    return words, torch.tensor([label for _, label in samples])


class Classifier(nn.Module):
    """A small transformer encoder."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, words):
        hidden = self.encoder(self.embedding(words))
        return self.head(hidden.mean(1))


def main():
    torch.manual_seed(0)
    device = torch.device("hpu")
    model = Classifier().to(device)
    # One kernel for all parameters (FUS101).
    optimizer = FusedAdamW(model.parameters(), lr=3e-4)
    # Workers load batches in advance, memory is pinned, and a smaller last batch is dropped (GAP102, CPY101, RCP101).
    loader = DataLoader(Reviews(), batch_size=BATCH, collate_fn=collate, num_workers=2, pin_memory=True, drop_last=True)
    # The sums stay on the device. mark_step ends the graph that creates them, so that all steps have the same graph.
    total, right = torch.zeros((), device=device), torch.zeros((), dtype=torch.long, device=device)
    htcore.mark_step()
    for epoch in range(EPOCHS):
        for step, (words, labels) in enumerate(loader):
            words, labels = words.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            with torch.autocast(device_type="hpu", dtype=torch.bfloat16):
                logits = model(words)
                loss = F.cross_entropy(logits, labels)
            loss.backward()
            total += loss.detach()
            right += (logits.argmax(-1) == labels).sum()
            htcore.mark_step()
            optimizer.step()
            optimizer.zero_grad()
            htcore.mark_step()
            # Read the values only every twentieth step (SYN101).
            if step % 20 == 19:
                print(f"epoch {epoch} step {step + 1} loss {total.item() / (step + 1):.4f} right {right.item()}")


if __name__ == "__main__":
    main()
