"""Compares predicted and measured gains on the CPU: ``python benchmarks/cpu_gains.py`` writes the tables for this
processor to docs/gains.md.

Each pair is a script before and after its advice is followed, run on one thread. The measured gain compares the fastest
of many steps by CPU time, or by wall time if the script has loader workers, because the process's CPU time does not
include theirs. Steps of the two scripts alternate, because other processes may be using the machine. The predicted gain
is a share of the recorded step, the median of three recordings. Measuring and recording take priority over other
processes if the system allows it. Measurements of the machine's load are removed from recordings, because on an
overloaded machine, the report predicts no gains. The scripts are whole runs, written as a user would write them; the
benchmark follows the first advice in their reports.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

import perftool
from perftool.model.processors import processor_name
from perftool.model.report import Gain

Step = Callable[[], object]
_SECONDS = 6.0
_RECORDED = 14
_PAGE = Path(__file__).parents[1] / "docs" / "gains.md"
_BEGIN, _END = "<!-- cpu gains: begin -->\n", "<!-- cpu gains: end -->\n"


class Block(nn.Module):
    """A transformer layer with fused or hand-written attention."""

    def __init__(self, size: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norms = nn.ModuleList([nn.LayerNorm(size), nn.LayerNorm(size)])
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, size = x.shape
        q, k, v = (
            part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norms[0](x)).chunk(3, -1)
        )
        if self.fused:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(size // self.heads)
            mask = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
            mixed = torch.softmax(scores.masked_fill(mask, float("-inf")), -1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, size))
        result: torch.Tensor = x + self.mlp(self.norms[1](x))
        return result


def transformer(
    *, fused: bool = True, bf16: bool = False, fused_optimizer: bool = False, size: int = 256, tokens: int = 256,
    train: bool = True,
) -> Step:  # fmt: skip
    """Return a step of a two-layer transformer, in training or in inference."""
    model = nn.Sequential(nn.Embedding(1000, size), Block(size, 4, fused), Block(size, 4, fused), nn.Linear(size, 1000))
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused_optimizer)
    x = torch.randint(0, 1000, (2, tokens))

    def step() -> None:
        with torch.set_grad_enabled(train), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = functional.cross_entropy(model(x).flatten(0, 1), x.flatten())
        if train:
            torch.autograd.backward(loss)
            optimizer.step()
            optimizer.zero_grad()

    return step


def layers(*, fused: bool, count: int, size: int) -> Step:
    """Return a step of linear layers under AdamW."""
    model = nn.Sequential(*[nn.Linear(size, size) for _ in range(count)])
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused, foreach=False)
    x = torch.randn(64, size)

    def step() -> None:
        torch.autograd.backward(model(x).square().mean())
        optimizer.step()
        optimizer.zero_grad()

    return step


def update(
    model: nn.Module, loss: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer, bf16: bool = False
) -> Step:
    """Return a training step of ``model``."""

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            value = loss()
        torch.autograd.backward(value)
        optimizer.step()

    return step


def momentum(*, fused: bool | None) -> Step:
    """Return a training step with momentum and weight decay for 40 small tensors under SGD."""
    model = nn.Sequential(*[nn.Linear(128, 128) for _ in range(20)])
    x = torch.randn(64, 128)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=0.01, fused=fused)
    return update(model, lambda: model(x).square().mean(), optimizer)


def zeroed(*, drop: bool) -> Step:
    """Return a training step that fills the gradients with zeros, or sets them to None."""
    model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(8)])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.randn(16, 1024)

    def step() -> None:
        optimizer.zero_grad(set_to_none=drop)
        torch.autograd.backward(model(x).square().mean())
        optimizer.step()

    return step


def averaged(*, together: bool) -> Step:
    """Return a training step with a moving average of the weights, updated tensor by tensor or all together."""
    model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(20)])
    weights = [weight.detach() for weight in model.parameters()]
    averages = [weight.clone() for weight in weights]
    x = torch.randn(32, 256)
    train = update(model, lambda: model(x).square().mean(), torch.optim.SGD(model.parameters(), 0.1))

    def step() -> None:
        train()
        if together:
            torch._foreach_lerp_(averages, weights, 0.01)
        else:
            for average, weight in zip(averages, weights, strict=True):
                average.mul_(0.99).add_(weight, alpha=0.01)

    return step


def pictures(*, bf16: bool = False, channels_last: bool = False) -> Step:
    """Return a training step of a convolutional network."""
    layers: list[nn.Module] = []
    for count, more, stride in ((3, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2)):
        layers += [nn.Conv2d(count, more, 3, stride, 1, bias=False), nn.BatchNorm2d(more), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    x, y = torch.randn(16, 3, 64, 64), torch.randint(0, 10, (16,))
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    return update(model, lambda: functional.cross_entropy(model(x), y), optimizer, bf16)


def distances(*, product: bool) -> Step:
    """Return a training step that pulls vectors towards the nearest of many centres; distances are computed from all
    pairwise differences, or by a matmul."""
    model, centres = nn.Linear(32, 32), nn.Parameter(torch.randn(250, 32))
    x = torch.randn(500, 32)
    optimizer = torch.optim.SGD([*model.parameters(), centres], 0.1)

    def loss() -> torch.Tensor:
        y = model(x)
        squares = torch.cdist(y, centres).square() if product else (y[:, None] - centres[None]).pow(2).sum(-1)
        return squares.min(1).values.mean()

    return update(model, loss, optimizer)


def pointwise(*, compiled: bool) -> Step:
    """Return the forward and backward passes of layers with a hand-written activation, compiled or not."""
    first, second = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(x: torch.Tensor) -> torch.Tensor:
        wide = first(x)
        active = 0.5 * wide * (1 + torch.tanh(0.79788 * (wide + 0.044715 * wide * wide * wide)))
        result: torch.Tensor = (second(active) + x).square().mean()
        return result

    called = torch.compile(forward) if compiled else forward
    x = torch.randn(1024, 256)

    def step() -> None:
        torch.autograd.backward(called(x))
        first.zero_grad(), second.zero_grad()

    return step


def deep(*, repeats: bool) -> Step:
    """Return the forward and backward passes of blocks whose activations are recomputed in the backward pass, or
    kept.
    """
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(4))
    x = torch.randn(256, 512)

    def step() -> None:
        value = x
        for block in blocks:
            value = checkpoint(block, value, use_reentrant=False) if repeats else block(value)
        torch.autograd.backward(value.square().mean())
        blocks.zero_grad()

    return step


class Images(Dataset[torch.Tensor]):
    """Images generated in Python."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, number: int) -> torch.Tensor:
        made = torch.full((3, 64, 64), float(number % 10))
        for _ in range(4):
            made = (made - made.mean()) / (made.std() + 1)
        return made + sum(i * i for i in range(4000)) * 1e-12


def loaded(*, workers: int) -> Step:
    """Return a training step of a small network that gets its images from a loader."""
    model = nn.Sequential(nn.Conv2d(3, 32, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    batches = iter(DataLoader(Images(), 32, num_workers=workers))
    return update(model, lambda: model(next(batches)).square().mean(), torch.optim.SGD(model.parameters(), 0.1))


def recurrent(*, bf16: bool = False, fused_optimizer: bool = False) -> Step:
    """Return a training step of an LSTM that predicts tokens."""
    parts = nn.ModuleList([nn.Embedding(1000, 128), nn.LSTM(128, 256, 2, batch_first=True), nn.Linear(256, 1000)])
    x = torch.randint(0, 1000, (16, 64))

    def loss() -> torch.Tensor:
        return functional.cross_entropy(parts[2](parts[1](parts[0](x))[0]).flatten(0, 1), x.flatten())

    return update(parts, loss, torch.optim.Adam(parts.parameters(), fused=fused_optimizer), bf16)


def recommender(*, sparse: bool = False, fused_optimizer: bool = False) -> Step:
    """Return a training step of a network with eight embedding tables, under Adagrad."""
    bags = nn.ModuleList(nn.EmbeddingBag(50_000, 32, mode="sum", sparse=sparse) for _ in range(8))
    model = nn.ModuleList([bags, nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1))])
    starts = torch.arange(0, 2048, 4)

    def loss() -> torch.Tensor:
        found = [bag(torch.randint(0, 50_000, (2048,)), starts) for bag in bags]
        result: torch.Tensor = model[1](torch.cat(found, 1)).square().mean()
        return result

    return update(model, loss, torch.optim.Adagrad(model.parameters(), fused=fused_optimizer or None))


def towers(*, sparse: bool, optimizer: type[torch.optim.Optimizer]) -> Step:
    """Return a training step that reads only a few rows of two large embeddings."""
    parts = nn.ModuleList([nn.Embedding(count, 32, sparse=sparse) for count in (200_000, 100_000)])
    dense = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    users, items = torch.randint(0, 200_000, (1024,)), torch.randint(0, 100_000, (1024,))
    updates = [optimizer(parts.parameters()), torch.optim.Adam(dense.parameters())]

    def step() -> None:
        torch.autograd.backward(dense(torch.cat([parts[0](users), parts[1](items)], 1)).square().mean())
        for update in updates:
            update.step()
            update.zero_grad()

    return step


def graph(*, bf16: bool = False) -> Step:
    """Return a training step of a graph network, which gathers rows by edge and adds them up by node."""
    source, target = torch.randint(0, 5000, (2, 40_000))
    layers = nn.ModuleList([nn.Linear(64, 128), nn.Linear(128, 10)])
    x, y = torch.randn(5000, 64), torch.randint(0, 10, (5000,))

    def loss() -> torch.Tensor:
        value = x
        for layer in layers:
            sent = layer(value)[source]
            value = torch.zeros(5000, sent.shape[1], dtype=sent.dtype).index_add(0, target, sent)
        return functional.cross_entropy(value, y)

    return update(layers, loss, torch.optim.Adam(layers.parameters()), bf16)


def tokenised(*, fused: bool) -> Step:
    """Return a training step of a text classifier, whose tokenizer is written in Python."""
    model = nn.Sequential(nn.EmbeddingBag(2500, 64), nn.Linear(64, 2))
    text = " ".join(f"word{number % 977}" for number in range(4000))

    def loss() -> torch.Tensor:
        numbers = [int(word[4:]) for word in re.findall(r"\w+", text.lower())]
        result: torch.Tensor = model(torch.tensor(numbers).view(32, -1)).square().mean()
        return result

    return update(model, loss, torch.optim.AdamW(model.parameters(), fused=fused))


def compiled(*, bf16: bool) -> Step:
    """Return a training step of a compiled perceptron."""
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 512), nn.Linear(512, 10))
    called = torch.compile(model)
    x, y = torch.randn(256, 256), torch.randint(0, 10, (256,))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    return update(model, lambda: functional.cross_entropy(called(x), y), optimizer, bf16)


def quantised() -> Step:
    """Return the inference of a dynamically quantised perceptron."""
    warnings.simplefilter("ignore")
    model = nn.Sequential(nn.Linear(768, 3072), nn.ReLU(), nn.Linear(3072, 768)).eval()
    small = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    x = torch.randn(64, 768)

    @torch.no_grad()
    def step() -> None:
        small(x)

    return step


def parallel(*, bf16: bool = False, static: bool = False) -> Step:
    """Return a data-parallel training step with gloo and a single rank, because more ranks would compete for the
    cores.
    """
    if not distributed.is_initialized():
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    spread = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=static, static_graph=static)
    x, y = torch.randn(128, 512), torch.randint(0, 10, (128,))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    return update(spread, lambda: functional.cross_entropy(spread(x), y), optimizer, bf16)


_LONG = partial(transformer, tokens=1024)
_ANSWERS = partial(transformer, tokens=512, train=False)
# The rule (None if no rule covers the pair), and the steps before and after following its advice.
PAIRS: dict[str, tuple[str | None, Callable[[], Step], Callable[[], Step]]] = {
    "attention, 256 keys, training": ("FUS103", partial(transformer, fused=False), transformer),
    "attention, 1,024 keys, training": ("FUS103", partial(_LONG, fused=False), _LONG),
    "attention, 512 keys, inference": ("FUS103", partial(_ANSWERS, fused=False), _ANSWERS),
    "BF16, size 256": ("PRC101", transformer, partial(transformer, bf16=True)),
    "BF16, size 512": ("PRC101", partial(transformer, size=512), partial(transformer, size=512, bf16=True)),
    "AdamW of a transformer": ("FUS101", transformer, partial(transformer, fused_optimizer=True)),
    "AdamW, 40 small tensors": (
        "FUS101", partial(layers, fused=False, count=20, size=128), partial(layers, fused=True, count=20, size=128),
    ),
    "AdamW, 16 large tensors": (
        "FUS101", partial(layers, fused=False, count=8, size=1024), partial(layers, fused=True, count=8, size=1024),
    ),
    "SGD with momentum, 40 small tensors": ("FUS101", partial(momentum, fused=None), partial(momentum, fused=True)),
    "gradients zeroed or dropped": ("FUS107", partial(zeroed, drop=False), partial(zeroed, drop=True)),
    "EMA of the weights": ("FUS105", partial(averaged, together=False), partial(averaged, together=True)),
    "loader, 0 and 1 worker": ("GAP102", partial(loaded, workers=0), partial(loaded, workers=1)),
    "loader, 0 and 2 workers": ("GAP102", partial(loaded, workers=0), partial(loaded, workers=2)),
    "sparse gradients, Adam and SparseAdam": (
        "FUS111", partial(towers, sparse=False, optimizer=torch.optim.Adam),
        partial(towers, sparse=True, optimizer=torch.optim.SparseAdam),
    ),
    "channels_last": ("ENG113", pictures, partial(pictures, channels_last=True)),
    "distances of 500 x 250 pairs": ("FUS113", partial(distances, product=False), partial(distances, product=True)),
    "compiled activations": ("FUS108", partial(pointwise, compiled=False), partial(pointwise, compiled=True)),
    "checkpointed or kept activations": ("MEM109", partial(deep, repeats=True), partial(deep, repeats=False)),
}  # fmt: skip
# Scripts, and the same scripts after following a rule's advice. Which advice comes first depends on the processor.
_SMALL = partial(transformer, size=384, tokens=128)
SCRIPTS: dict[str, tuple[Callable[[], Step], dict[str, Callable[[], Step]]]] = {
    "transformer, training": (
        _SMALL, {"PRC101": partial(_SMALL, bf16=True), "FUS101": partial(_SMALL, fused_optimizer=True)}),
    "transformer, inference": (partial(_ANSWERS, size=384), {"PRC101": partial(_ANSWERS, size=384, bf16=True)}),
    "convolutional network": (
        pictures, {"PRC101": partial(pictures, bf16=True), "ENG113": partial(pictures, channels_last=True)}),
    "LSTM": (recurrent, {"PRC101": partial(recurrent, bf16=True), "FUS101": partial(recurrent, fused_optimizer=True)}),
    "recommender": (
        recommender,
        {"FUS111": partial(recommender, sparse=True), "FUS101": partial(recommender, fused_optimizer=True)}),
    "graph neural network (GNN)": (graph, {"PRC101": partial(graph, bf16=True)}),
    "bound by its tokeniser": (partial(tokenised, fused=False), {"FUS101": partial(tokenised, fused=True)}),
    "bound by its loader": (partial(loaded, workers=0), {"GAP102": partial(loaded, workers=2)}),
    "compiled": (partial(compiled, bf16=False), {"PRC101": partial(compiled, bf16=True)}),
    "dynamically quantised": (quantised, {}),
    "data parallel, gloo": (
        parallel, {"PRC101": partial(parallel, bf16=True), "COL107": partial(parallel, static=True)}),
}  # fmt: skip


@contextmanager
def undisturbed() -> Iterator[None]:
    """Give this process priority over others, if the system allows it."""
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        with suppress(OSError, AttributeError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def measured(steps: list[Step], clock: Callable[[], float] = time.process_time) -> list[float]:
    """Return the shortest time of each step, in s."""
    best = [math.inf] * len(steps)
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until or math.inf in best:
        for number, step in enumerate(steps):
            begun = clock()
            step()
            best[number] = min(best[number], clock() - begun)
    return best


def recorded(step: Step, path: Path) -> None:
    """Write a recording of ``step`` to ``path``, without its measurements of the machine's load."""
    with perftool.profile(path.parent, quiet=True) as recording:
        for _ in range(_RECORDED):
            step()
            recording.step()
    trace = json.loads(gzip.decompress(recording.traces[-1].read_bytes()))
    trace["perftoolRecording"].pop("window", None)
    path.write_text(json.dumps(trace), encoding="utf-8")


def answered(step: Step) -> perftool.Report:
    """Record ``step`` and return the report."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        with undisturbed():
            recorded(step, path)
        return perftool.analyze(path)


def median_gain(gains: Sequence[Gain | None]) -> str:
    """Return the median of ``gains`` as a share of the step, or ``nothing`` unless most reports promise a gain."""
    found = sorted((gain for gain in gains if gain), key=lambda gain: gain.share_of_step)
    if 2 * len(found) <= len(gains):
        return "nothing"
    gain = found[len(found) // 2]
    return f"{'' if gain.kind == 'predicted' else 'up to '}{gain.share_of_step:.1%}"


def row(name: str) -> str:
    """Measure a pair and return its row of the table."""
    code, before, after = PAIRS[name]
    slow, quick = figures(before, after)
    reports = answers(before)
    gains = [next((found.gain for found in report.findings if found.code == code), None) for report in reports]
    times = f"{1e3 * slow:.1f} | {1e3 * quick:.1f} | {1 - quick / slow:.1%}"
    return f"| {name} | {code or 'none'} | {times} | {median_gain(gains)} |"


def script_row(name: str) -> str:
    before, afters = SCRIPTS[name]
    reports = answers(before)
    advised = [next((found for found in report.findings if found.advice and found.gain), None) for report in reports]
    first = Counter(found.code if found else "none" for found in advised).most_common(1)[0][0]
    promised = median_gain([found.gain if found and found.code == first else None for found in advised])
    slow, quick = figures(before, afters.get(first, before))
    followed = f"{1e3 * quick:.1f} | {1 - quick / slow:.1%}" if first in afters else "| "
    return f"| {name} | {first} | {1e3 * slow:.1f} | {followed} | {promised} |"


def answers(make: Callable[[], Step]) -> list[perftool.Report]:
    """Record a step three times and return the reports."""
    step = make()
    for _ in range(2):
        step()
    return [answered(step) for _ in range(3)]


def figures(before: Callable[[], Step], after: Callable[[], Step]) -> tuple[float, float]:
    """Return the shortest time of a step before and after following the advice, in s."""
    steps = [before(), after()]
    for step in steps * 2:
        step()
    clock = time.perf_counter if getattr(before, "func", None) is loaded else time.process_time
    with undisturbed():
        slow, quick = measured(steps, clock)
    return slow, quick


def main(names: list[str]) -> None:
    """Measure the pairs and scripts ``names``. If there are no names, measure all of them and write the page's
    tables."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    lines: dict[str, list[str]] = {"pairs": [], "scripts": []}
    for kind, make, known in (("pairs", row, PAIRS), ("scripts", script_row, SCRIPTS)):
        for name in known:
            if not names or name in names:
                lines[kind].append(make(name))
                print(lines[kind][-1], flush=True)
    text = [
        f"**{processor_name() or 'Unknown processor'}**, {torch.backends.cpu.get_cpu_capability()}, "
        f"PyTorch {torch.__version__}", "",
        "| pair | rule | before | after | measured | reported |", "|---|---|---|---|---|---|", *lines["pairs"], "",
        "| script | first advice | before | after | measured | reported |",
        "|---|---|---|---|---|---|", *lines["scripts"], "",
    ]  # fmt: skip
    if not names:
        page = _PAGE.read_text(encoding="utf-8")
        before, after = page.split(_BEGIN)[0], page.split(_END)[1]
        known = page.split(_BEGIN)[1].split(_END)[0].split("\n**")
        others = [block if block.startswith("**") else f"**{block}" for block in known]
        kept = [block.rstrip("\n") + "\n" for block in others if block.split("**")[1] != text[0].split("**")[1]]
        _PAGE.write_text(before + _BEGIN + "\n".join(["\n".join(text), *kept]) + _END + after, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
