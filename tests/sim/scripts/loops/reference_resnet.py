"""A classifier in the style of Habana's reference models, with command-line arguments, FusedSGD, and values read every few steps."""

import argparse
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

p = argparse.ArgumentParser()
p.add_argument("device")
p.add_argument("--batch-size", type=int, default=4)
p.add_argument("--print-freq", type=int, default=2)
p.add_argument("--autocast", action="store_true", default=False)
p.add_argument("--run-lazy-mode", default=True)
args = p.parse_args()
if args.device == "hpu":
    os.environ.setdefault("PT_HPU_LAZY_MODE", "1")
    from habana_frameworks.torch.utils.library_loader import load_habana_module

    load_habana_module()
    import habana_frameworks.torch.core as htcore
    from habana_frameworks.torch.hpex.optimizers import FusedSGD


class Block(nn.Module):
    def __init__(self, a, b, s):
        super().__init__()
        self.c1, self.b1, self.c2, self.b2 = (
            nn.Conv2d(a, b, 3, s, 1, bias=False),
            nn.BatchNorm2d(b),
            nn.Conv2d(b, b, 3, 1, 1, bias=False),
            nn.BatchNorm2d(b),
        )
        self.down = (
            nn.Sequential(nn.Conv2d(a, b, 1, s, bias=False), nn.BatchNorm2d(b)) if s != 1 or a != b else nn.Identity()
        )

    def forward(self, x):
        y = torch.relu(self.b1(self.c1(x)))
        return torch.relu(self.b2(self.c2(y)) + self.down(x))


torch.manual_seed(123)
model = nn.Sequential(
    nn.Conv2d(3, 8, 3, 1, 1), Block(8, 8, 1), Block(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)
).to(args.device)
opt = (FusedSGD if args.device == "hpu" else torch.optim.SGD)(
    model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4
)
loader = DataLoader(
    TensorDataset(torch.randn(16, 3, 16, 16), torch.randint(0, 5, (16,))),
    batch_size=args.batch_size,
    pin_memory=True,
    drop_last=True,
)
crit = nn.CrossEntropyLoss(label_smoothing=0.1)
model.train()
shown = []


def accuracy(output, target, topk=(1, 2)):
    with torch.no_grad():
        _, pred = output.topk(max(topk), 1, True, True)
        correct = pred.t().eq(target[None])
        return [correct[:k].flatten().sum(dtype=torch.float32) * (100.0 / target.size(0)) for k in topk]


for step, (image, target) in enumerate(loader):
    image, target = image.to(args.device, non_blocking=True), target.to(args.device, non_blocking=True)
    output = model(image)
    loss = crit(output, target)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    if args.device == "hpu":
        htcore.mark_step()
    opt.step()
    if args.device == "hpu":
        htcore.mark_step()
    if step % args.print_freq == 1:
        a1, a2 = accuracy(output, target)
        print("value", loss.item(), a1.item(), a2.item())
