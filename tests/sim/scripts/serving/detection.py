"""A detector's boxes, selected by a mask and by non-maximum suppression."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
dev = sys.argv[1]


def iou(a, b):
    area = lambda x: (x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1])
    lt = torch.max(a[:, None, :2], b[:, :2])
    rb = torch.min(a[:, None, 2:], b[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[..., 0] * wh[..., 1]
    return inter / (area(a)[:, None] + area(b) - inter)


def nms(boxes, scores, thr):
    order = scores.argsort(descending=True)
    keep = []
    while order.numel() > 0:
        i = order[0]
        keep.append(i.item())
        if order.numel() == 1:
            break
        rest = order[1:]
        order = rest[iou(boxes[i][None], boxes[rest])[0] <= thr]
    return torch.tensor(keep, device=boxes.device)


backbone = (
    nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 5, 3, 2, 1)).to(dev).eval()
)
image = torch.rand(1, 3, 32, 32).to(dev)
with torch.no_grad():
    out = backbone(image).permute(0, 2, 3, 1).reshape(-1, 5)
    xy, wh = out[:, :2].sigmoid(), out[:, 2:4].exp() * 0.1
    boxes, scores = torch.cat([xy - wh, xy + wh], -1), out[:, 4].sigmoid()
    good = scores > 0.4
    boxes, scores = boxes[good], scores[good]
    top = scores.topk(min(20, len(scores))).indices
    keep = nms(boxes[top], scores[top], 0.3)
    print("value", len(keep), boxes[top][keep].sum().item())
