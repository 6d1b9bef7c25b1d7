"""The parameter shapes of three models, written out so that no model has to be installed."""

from __future__ import annotations

import random

Shape = tuple[int, ...]


def resnet50() -> list[Shape]:
    """161 tensors, 25.6 million elements."""
    shapes: list[Shape] = [(64, 3, 7, 7), (64,), (64,)]
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            for shape in ((width, inputs, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)):
                shapes += [shape, (shape[0],), (shape[0],)]
            if block == 0:
                shapes += [(4 * width, inputs, 1, 1), (4 * width,), (4 * width,)]
            inputs = 4 * width
    return [*shapes, (1000, 2048), (1000,)]


def bert_base() -> list[Shape]:
    """199 tensors, 109.5 million elements."""
    hidden, inner = 768, 3072
    shapes: list[Shape] = [(30522, hidden), (512, hidden), (2, hidden), (hidden,), (hidden,)]
    for _ in range(12):
        shapes += [(hidden, hidden), (hidden,)] * 4 + [(hidden,), (hidden,)]
        shapes += [(inner, hidden), (inner,), (hidden, inner), (hidden,), (hidden,), (hidden,)]
    return [*shapes, (hidden, hidden), (hidden,)]


def many_small() -> list[Shape]:
    """2,000 tensors, 2.2 million elements."""
    sizes = random.Random(0)
    return [(sizes.randint(64, 2136),) for _ in range(2000)]


SETS = {"resnet50": resnet50, "bert": bert_base, "2000 small": many_small}
