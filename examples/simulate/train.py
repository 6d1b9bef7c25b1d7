"""A typical training loop: correct, but slow on a Gaudi. `train_fixed.py` follows the advice.

habana_perf_tool simulate examples/simulate/train.py
"""

import time

import habana_frameworks.torch.core as htcore
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

VOCABULARY, WIDTH, HEADS, LAYERS, CLASSES = 1000, 128, 4, 2, 4
EXAMPLES, BATCH, EPOCHS = 500, 8, 1


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
    """Pad to the longest text in the batch."""
    words = nn.utils.rnn.pad_sequence([words for words, _ in samples], batch_first=True)
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
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    loader = DataLoader(Reviews(), batch_size=BATCH, collate_fn=collate)
    for epoch in range(EPOCHS):
        total, right = 0.0, 0
        for step, (words, labels) in enumerate(loader):
            words, labels = words.to(device), labels.to(device)
            with torch.autocast(device_type="hpu", dtype=torch.bfloat16):
                logits = model(words)
                loss = F.cross_entropy(logits, labels)
            loss.backward()
            htcore.mark_step()
            optimizer.step()
            optimizer.zero_grad()
            htcore.mark_step()
            total += loss.item()
            right += (logits.argmax(-1) == labels).sum().item()
            if step % 20 == 19:
                print(f"epoch {epoch} step {step + 1} loss {total / (step + 1):.4f} right {right}")


if __name__ == "__main__":
    main()
