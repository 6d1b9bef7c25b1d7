"""The parameter shapes of well-known models, generated from their configurations and named as in the tables."""

from __future__ import annotations

from perftool.bench.workloads.weights import Shape, bert_base_shapes, resnet50_shapes

__all__ = ["SETS", "Shape"]

# Expansion, kernel size, channels and repetitions of the inverted residual blocks.
_MOBILENET = ((1, 3, 16, 1), (6, 3, 24, 2), (6, 3, 32, 3), (6, 3, 64, 4), (6, 3, 96, 3), (6, 3, 160, 3), (6, 3, 320, 1))


def _convolution(*shape: int) -> list[Shape]:
    """Return the weight of a convolution and the parameters of the normalisation after it."""
    return [shape, (shape[0],), (shape[0],)]


def mobilenet_v2_shapes() -> list[Shape]:
    """Return the parameters of MobileNetV2: 158 tensors, 3.5 million elements."""
    shapes, entering = _convolution(32, 3, 3, 3), 32
    for expansion, kernel, leaving, count in _MOBILENET:
        for _ in range(count):
            wide = entering * expansion
            shapes += _convolution(wide, entering, 1, 1) if expansion > 1 else []
            shapes += _convolution(wide, 1, kernel, kernel)
            shapes += _convolution(leaving, wide, 1, 1)
            entering = leaving
    return [*shapes, *_convolution(1280, 320, 1, 1), (1000, 1280), (1000,)]


def vit_b_shapes() -> list[Shape]:
    """Return the parameters of ViT-B/16: 152 tensors, 86.6 million elements."""
    size, inner = 768, 3072
    shapes: list[Shape] = [(size, 3, 16, 16), (size,), (1, 1, size), (1, 197, size)]
    for _ in range(12):
        shapes += [(size,), (size,), (3 * size, size), (3 * size,), (size, size), (size,)]
        shapes += [(size,), (size,), (inner, size), (inner,), (size, inner), (size,)]
    return [*shapes, (size,), (size,), (1000, size), (1000,)]


def lora_shapes(rank: int = 16) -> list[Shape]:
    """Return the adapters of all linear layers of a Llama with 1 billion parameters: 224 tensors, 11.3 million
    elements.
    """
    hidden, keys, inner = 2048, 512, 8192
    linear = ((hidden, hidden), (hidden, keys), (hidden, keys), (hidden, hidden))
    linear += ((hidden, inner), (hidden, inner), (inner, hidden))
    return [shape for _ in range(16) for before, after in linear for shape in ((rank, before), (after, rank))]


def gpt2_shapes() -> list[Shape]:
    """Return the parameters of GPT-2: 148 tensors, 124.4 million elements."""
    size = 768
    shapes: list[Shape] = [(50257, size), (1024, size)]
    for _ in range(12):
        shapes += [(size,), (size,), (size, 3 * size), (3 * size,), (size, size), (size,)]
        shapes += [(size,), (size,), (size, 4 * size), (4 * size,), (4 * size, size), (size,)]
    return [*shapes, (size,), (size,)]


SETS = {
    "MobileNetV2": mobilenet_v2_shapes,
    "ResNet-50": resnet50_shapes,
    "LoRA, Llama 1B": lora_shapes,
    "ViT-B/16": vit_b_shapes,
    "BERT-base": bert_base_shapes,
    "GPT-2": gpt2_shapes,
}
