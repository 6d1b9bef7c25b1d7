"""Fused optimizers against the plain loop and against torch.optim with fused=True, in time and in peak memory.

python -m benchmarks.fused.optimizers [--tuned-heap] [--keep-gradients] [--rounds N] [--sets NAME ...] [--ops NAME ...]

`ours` is the automatic choice, `native` the same class with the native kernels, where a compiler is, `bare` the calls
of kernels alone. The last table holds each goal against what was measured.
"""

from __future__ import annotations

import argparse
import copy
import gc
import math
import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.fused.bare import bare
from benchmarks.fused.measure import Contender, Race, conditions, race, table, use_one_thread
from benchmarks.fused.shapes import SETS, Shape
from perftool.bench.harness.recording import peak_memory
from perftool.fused import (
    FusedAdagrad,
    FusedAdamW,
    FusedClipNorm,
    FusedEMA,
    FusedLamb,
    FusedLars,
    FusedResourceApplyMomentum,
    FusedSGD,
    reference,
)
from perftool.fused.optimizers import native

Params = list[nn.Parameter]
Case = Callable[[list[Shape]], list[Contender]]
DECAY = 0.01
BYTES = {
    "SGD": 20,
    "Adagrad": 20,
    "AdamW": 28,
    "AdamW bf16": 20,
    "LAMB": 44,
    "LARS": 28,
    "EMA": 12,
    "clip": 12,
    "clip, not needed": 4,
    "clip + AdamW": 36,
}
"""Bytes per element that an op has to move in float32."""


def parameters(shapes: list[Shape]) -> Params:
    """Random parameters with gradients."""
    torch.manual_seed(0)
    params = [nn.Parameter(torch.randn(shape) * 0.02) for shape in shapes]
    renew(params)
    return params


def renew(params: Params) -> None:
    """Give new gradients, as a backward pass after `zero_grad()` does."""
    for param in params:
        param.grad = None
        param.grad = torch.full_like(param, 1e-3)


class Trained(Contender):
    """A contender whose parameters have new gradients at every run, unless KEPT."""

    def __init__(self, name: str, params: Params, run: Callable[[], object]) -> None:
        super().__init__(name, run, (lambda: None) if KEPT else lambda: renew(params))


SMALL_MODELS = ("MobileNetV2", "EfficientNet-B0", "LoRA,")
KEPT = "--keep-gradients" in sys.argv


def zeros(params: Params, count: int, dtype: torch.dtype | None = None) -> list[list[Tensor]]:
    """`count` lists of states."""
    return [[torch.zeros_like(param, dtype=dtype) for param in params] for _ in range(count)]


def grads(params: Params) -> list[Tensor]:
    """The gradients of all parameters."""
    return [param.grad for param in params if param.grad is not None]


def renamed(contender: Contender, name: str) -> Contender:
    """The same under another name."""
    return Contender(name, contender.run, contender.prepare)


def both(make: Callable[[str | None], Contender]) -> list[Contender]:
    """The contender `ours` and, where it can be built, `native`, each made for its backend."""
    ours = make(None)
    return [ours] if native.obstacle() else [ours, renamed(make("native"), "native")]


def stepped(name: str, optimizer: torch.optim.Optimizer) -> Contender:
    """A contender that steps."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    return Trained(name, params, lambda: optimizer.step())


def sgd(shapes: list[Shape]) -> list[Contender]:
    """Momentum and weight decay."""
    naive = parameters(shapes)
    (buffers,) = zeros(naive, 1)
    options = {"lr": 1e-3, "momentum": 0.9, "weight_decay": DECAY}
    return [
        Trained("naive", naive, lambda: reference.sgd_(naive, grads(naive), buffers, **options)),
        stepped("fused=True", torch.optim.SGD(parameters(shapes), fused=True, **options)),
        *both(lambda backend: stepped("ours", FusedSGD(parameters(shapes), **options, backend=backend))),
    ]


def adagrad(shapes: list[Shape]) -> list[Contender]:
    """With weight decay."""
    naive = parameters(shapes)
    (sums,) = zeros(naive, 1)
    options = {"lr": 1e-3, "weight_decay": DECAY}
    return [
        Trained("naive", naive, lambda: reference.adagrad_(naive, grads(naive), sums, step=5, **options)),
        stepped("fused=True", torch.optim.Adagrad(parameters(shapes), fused=True, **options)),
        *both(lambda backend: stepped("ours", FusedAdagrad(parameters(shapes), **options, backend=backend))),
    ]


def _naive_adamw(params: Params) -> Callable[[], object]:
    moments = zeros(params, 2)
    options = {"step": 5, "lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-6, "weight_decay": DECAY}
    return lambda: reference.adamw_(params, grads(params), *moments, **options)


def adamw(shapes: list[Shape]) -> list[Contender]:
    """With weight decay."""
    naive = parameters(shapes)
    return [
        Trained("naive", naive, _naive_adamw(naive)),
        stepped("fused=True", torch.optim.AdamW(parameters(shapes), weight_decay=DECAY, fused=True)),
        *both(lambda backend: stepped("ours", FusedAdamW(parameters(shapes), weight_decay=DECAY, backend=backend))),
    ]


def adamw_bf16(shapes: list[Shape]) -> list[Contender]:
    """Moments in bfloat16; the naive loop casts them as a whole."""
    naive = parameters(shapes)
    moments = zeros(naive, 2, torch.bfloat16)
    options = {"step": 5, "lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-6, "weight_decay": DECAY}

    def run() -> None:
        wide = [[moment.float() for moment in each] for each in moments]
        reference.adamw_(naive, grads(naive), *wide, **options)
        for each, casts in zip(moments, wide, strict=True):
            for moment, cast in zip(each, casts, strict=True):
                moment.copy_(cast)

    ours = FusedAdamW(parameters(shapes), weight_decay=DECAY, moments_dtype=torch.bfloat16)
    return [Trained("naive", naive, run), stepped("ours", ours)]


def lamb(shapes: list[Shape]) -> list[Contender]:
    """Clipping not active."""
    naive = parameters(shapes)
    moments = zeros(naive, 2)
    options = {"step": 5, "lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-6, "weight_decay": DECAY}

    def run() -> None:
        reference.lamb_(naive, grads(naive), *moments, max_grad_norm=1e3, **options)

    def make(backend: str | None) -> Contender:
        return stepped("ours", FusedLamb(parameters(shapes), max_grad_norm=1e3, backend=backend))

    return [Trained("naive", naive, run), *both(make)]


def lars(shapes: list[Shape]) -> list[Contender]:
    """Every other parameter is not adapted; the wrapped optimizer has momentum."""
    naive = parameters(shapes)
    (buffers,) = zeros(naive, 1)
    mask = [int(i % 2 == 0) for i in range(len(shapes))]

    def run() -> None:
        reference.lars_scale_(naive, grads(naive), mask, lr=1.0, weight_decay=DECAY, eeta=1.0)
        reference.resource_apply_momentum_(naive, grads(naive), buffers, momentum=0.9, first_step=False)

    def make(backend: str | None) -> Contender:
        base = FusedResourceApplyMomentum(parameters(shapes), lr=1.0, momentum=0.9, weight_decay=DECAY, backend=backend)
        return stepped("ours", FusedLars(base, mask, eeta=1.0, backend=backend))

    return [Trained("naive", naive, run), *both(make)]


class Model(nn.Module):
    """Holds parameters of given shapes."""

    def __init__(self, shapes: list[Shape]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(parameters(shapes))


def ema(shapes: list[Shape]) -> list[Contender]:
    """The plain form over state_dict(), as it is commonly written, out of place; ours well after its first updates."""
    model = Model(shapes)
    average = copy.deepcopy(model)

    def run() -> None:
        reference.ema_(list(average.state_dict().values()), list(model.state_dict().values()), decay=0.99)

    def make(backend: str | None) -> Contender:
        followed = Model(shapes)
        fused = FusedEMA(followed, updates=10_000, backend=backend)
        return Trained("ours", list(followed.parameters()), lambda: fused.update(followed))

    return [Trained("naive", list(model.parameters()), run), *both(make)]


def clip(shapes: list[Shape]) -> list[Contender]:
    """The norm is always above the limit."""
    return _clip(shapes, 1e-6)


def clip_not_needed(shapes: list[Shape]) -> list[Contender]:
    """The norm is below the limit."""
    return _clip(shapes, 1e30)


def _clip(shapes: list[Shape], limit: float) -> list[Contender]:
    naive, theirs = parameters(shapes), parameters(shapes)

    def make(backend: str | None) -> Contender:
        params = parameters(shapes)
        fused = FusedClipNorm(params, limit, backend=backend)
        return Trained("ours", params, lambda: fused.clip_norm(params))

    return [
        Trained("naive", naive, lambda: reference.clip_norm_(grads(naive), limit)),
        Trained("foreach", theirs, lambda: nn.utils.clip_grad_norm_(theirs, limit, foreach=True)),
        *both(make),
    ]


def clip_adamw(shapes: list[Shape]) -> list[Contender]:
    """Clipping folded into the step, with a limit that the norm exceeds at every step."""
    naive = parameters(shapes)
    step = _naive_adamw(naive)

    def run() -> None:
        reference.clip_norm_(grads(naive), 1e-6)
        step()

    def make(backend: str | None) -> Contender:
        params = parameters(shapes)
        optimizer = FusedAdamW(params, weight_decay=DECAY, backend=backend)
        fused = FusedClipNorm(params, 1e-6, optimizer=optimizer, backend=backend)
        return Trained("ours", params, lambda: (fused.clip_norm(params), optimizer.step()))

    alone = [
        stepped(name, each)
        for name, each in (
            ("step alone", FusedAdamW(parameters(shapes), weight_decay=DECAY)),
            ("native step alone", FusedAdamW(parameters(shapes), weight_decay=DECAY, backend="native")),
        )
    ]
    return [Trained("naive", naive, run), *(alone[:1] if native.obstacle() else alone), *both(make)]


CASES: dict[str, Case] = {
    "SGD": sgd,
    "Adagrad": adagrad,
    "AdamW": adamw,
    "AdamW bf16": adamw_bf16,
    "LAMB": lamb,
    "LARS": lars,
    "EMA": ema,
    "clip": clip,
    "clip, not needed": clip_not_needed,
    "clip + AdamW": clip_adamw,
}


OTHERS = ("fused=True", "foreach", "step alone")
"""What an op is held against besides the loop: the first of these that takes part."""


def row(op: str, name: str, elements: int, result: Race) -> list[str]:
    """One line of the table."""
    times = {timing.name: timing.best for timing in result.timings}
    other = next((each for each in OTHERS if each in times), None)
    other_native = "native step alone" if other == "step alone" else other
    shown = ("naive", other, "ours", "native", "bare")
    line = [op, name, *(f"{times[each]:.2f}" if each in times else "-" for each in shown)]
    for slower, faster in (("naive", "ours"), ("naive", "native"), (other, "ours"), (other_native, "native")):
        known = slower in times and faster in times
        line.append(f"{result.ratio(slower, faster)} {result.ratio(slower, faster).verdict}" if known else "-")
    return [*line, f"{100 * elements * BYTES[op] / times['ours'] / 1e6 / result.bandwidth:.0f} %"]


HEADER = (
    *("op", "set", "naive ms", "other ms", "ours ms", "native ms", "bare ms"),
    *("naive/ours", "naive/native", "other/ours", "other/native", "bandwidth"),
)
FEW = "2,000 x 64"
GOALS = {
    **{(op, name): 1.3 for op in ("AdamW", "SGD", "Adagrad") for name in SETS if name.split()[0] in SMALL_MODELS},
    ("AdamW", FEW): 3.3,
    ("LAMB", FEW): 20.0,
    ("LARS", FEW): 10.0,
    ("EMA", FEW): 12.0,
}
"""How many times as long the others shall take: `fused=True`, or where there is none the loop."""


def goal_row(op: str, name: str, result: Race) -> list[str]:
    """A goal, and the ratio of the minima for the automatic choice, the bare calls and the native kernels."""
    times = {timing.name: timing.best for timing in result.timings}
    against = "fused=True" if "fused=True" in times else "naive"
    ratios = [f"{times[against] / times[each]:.2f}" if each in times else "-" for each in ("ours", "bare", "native")]
    return [op, name, against, str(GOALS[op, name]), *ratios]


GOAL_HEADER = ("op", "set", "against", "goal", "automatic", "bare", "native")


OPTIMIZERS: dict[str, dict[str, Callable[[Params], torch.optim.Optimizer]]] = {
    "SGD": {
        "fused=True": lambda params: torch.optim.SGD(params, 1e-3, momentum=0.9, weight_decay=DECAY, fused=True),
        "ours": lambda params: FusedSGD(params, 1e-3, momentum=0.9, weight_decay=DECAY),
    },
    "Adagrad": {
        "fused=True": lambda params: torch.optim.Adagrad(params, weight_decay=DECAY, fused=True),
        "ours": lambda params: FusedAdagrad(params, weight_decay=DECAY),
    },
    "AdamW": {
        "fused=True": lambda params: torch.optim.AdamW(params, weight_decay=DECAY, fused=True),
        "ours": lambda params: FusedAdamW(params, weight_decay=DECAY),
    },
}


def memory_row(op: str, name: str) -> list[str]:
    """Bytes per element that an optimizer and two steps with new gradients take at their peak, beside parameters."""
    shapes = SETS[name]()
    params = parameters(shapes)

    def run(make: Callable[[Params], torch.optim.Optimizer]) -> None:
        optimizer = make(params)
        for _ in range(2):
            renew(params)
            optimizer.step()
        optimizer.zero_grad()
        del optimizer
        gc.collect()

    elements = sum(map(math.prod, shapes))
    found = [peak_memory(lambda make=make: run(make), torch.device("cpu")) for make in OPTIMIZERS[op].values()]
    return [op, name, *(f"{each / elements:.2f}" for each in found), f"{found[1] / found[0]:.3f}"]


def main() -> None:
    """Print the table of times, or with `--memory` that of memory."""
    options = argparse.ArgumentParser()
    options.add_argument("--tuned-heap", action="store_true")
    options.add_argument("--keep-gradients", action="store_true")
    options.add_argument("--memory", action="store_true")
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--sets", nargs="*", default=list(SETS))
    options.add_argument("--ops", nargs="*", default=list(CASES))
    chosen = options.parse_args()
    use_one_thread()
    print(f"{conditions()}\n")
    if chosen.memory:
        header = ("op", "set", "fused=True B/element", "ours B/element", "ours / fused=True")
        print(table(header, [memory_row(op, name) for name in chosen.sets for op in OPTIMIZERS if op in chosen.ops]))
        return
    print(table(HEADER, []))
    goals = []
    for name in chosen.sets:
        shapes = SETS[name]()
        elements = sum(map(math.prod, shapes))
        for op in chosen.ops:
            running = [*CASES[op](shapes), *bare(op, parameters(shapes), renew)]
            result = race(running, chosen.rounds)
            # A line at a time: the large models take minutes.
            print("| " + " | ".join(row(op, name, elements, result)) + " |", flush=True)
            goals += [goal_row(op, name, result)] if (op, name) in GOALS else []
    print("\n" + table(GOAL_HEADER, goals))


if __name__ == "__main__":
    main()
