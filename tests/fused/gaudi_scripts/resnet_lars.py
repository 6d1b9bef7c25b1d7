"""Image classification as Gaudi users write it: LARS around momentum, or FusedSGD."""

import argparse

import habana_frameworks.torch as ht
import habana_frameworks.torch.core as htcore
import torch
import torch.nn as nn
from habana_frameworks.torch.hpex.optimizers import FusedLars, FusedResourceApplyMomentum, FusedSGD
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x):
        return torch.relu(x + self.norm(self.conv(x)))


def make_optimizer(name, model):
    if name == "sgd":
        return FusedSGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)
    skip_mask = [1 if param.dim() > 1 else 0 for param in model.parameters()]
    base = FusedResourceApplyMomentum(model.parameters(), lr=0.5, momentum=0.9, weight_decay=5e-5)
    return FusedLars(base, skip_mask, eeta=0.01, eps=1e-6)


def train(name, args, device):
    torch.manual_seed(0)
    images = torch.randn(32, 3, 8, 8)
    labels = (images[:, 0].mean((1, 2)) > images[:, 1].mean((1, 2))).long()
    data = DataLoader(TensorDataset(images, labels), batch_size=8, shuffle=True, drop_last=True)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), Block(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    model = model.to(device).to(memory_format=torch.channels_last)
    optimizer = make_optimizer(name, model)
    criterion, losses = nn.CrossEntropyLoss(), []
    for _ in range(args.epochs):
        total = torch.zeros((), device="hpu")
        for image, label in data:
            image = image.to(device, non_blocking=True).contiguous(memory_format=torch.channels_last)
            loss = criterion(model(image), label.to(device, non_blocking=True))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            htcore.mark_step()
            optimizer.step()
            htcore.mark_step()
            total += loss.detach()
        losses.append(total.item())
    ht.hpu.synchronize()
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.hpu.set_device(0)
    sgd = train("sgd", args, torch.device("hpu:0"))
    assert sgd[-1] < sgd[0], sgd
    lars = train("lars", args, "hpu")
    assert len(lars) == args.epochs
    print("trained", ht.hpu.get_device_name() != "", ht.hpu.max_memory_allocated() > 0)
