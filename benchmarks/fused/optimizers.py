"""Fused optimizers against the plain loop and against torch.optim with fused=True.

python -m benchmarks.fused.optimizers [--tuned-heap] [--keep-gradients] [--rounds N] [--sets NAME ...] [--ops NAME ...]
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.fused.measure import Contender, Race, conditions, race, table, use_one_thread
from benchmarks.fused.shapes import SETS, Shape
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


KEPT = "--keep-gradients" in sys.argv


def zeros(params: Params, count: int, dtype: torch.dtype | None = None) -> list[list[Tensor]]:
    """`count` lists of states."""
    return [[torch.zeros_like(param, dtype=dtype) for param in params] for _ in range(count)]


def grads(params: Params) -> list[Tensor]:
    """The gradients of all parameters."""
    return [param.grad for param in params if param.grad is not None]


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
        stepped("ours", FusedSGD(parameters(shapes), **options)),
    ]


def adagrad(shapes: list[Shape]) -> list[Contender]:
    """With weight decay."""
    naive = parameters(shapes)
    (sums,) = zeros(naive, 1)
    options = {"lr": 1e-3, "weight_decay": DECAY}
    return [
        Trained("naive", naive, lambda: reference.adagrad_(naive, grads(naive), sums, step=5, **options)),
        stepped("fused=True", torch.optim.Adagrad(parameters(shapes), fused=True, **options)),
        stepped("ours", FusedAdagrad(parameters(shapes), **options)),
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
        stepped("ours", FusedAdamW(parameters(shapes), weight_decay=DECAY)),
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

    return [Trained("naive", naive, run), stepped("ours", FusedLamb(parameters(shapes), max_grad_norm=1e3))]


def lars(shapes: list[Shape]) -> list[Contender]:
    """Every other parameter is not adapted; the wrapped optimizer has momentum."""
    naive = parameters(shapes)
    (buffers,) = zeros(naive, 1)
    mask = [int(i % 2 == 0) for i in range(len(shapes))]

    def run() -> None:
        reference.lars_scale_(naive, grads(naive), mask, lr=1.0, weight_decay=DECAY, eeta=1.0)
        reference.resource_apply_momentum_(naive, grads(naive), buffers, momentum=0.9, first_step=False)

    base = FusedResourceApplyMomentum(parameters(shapes), lr=1.0, momentum=0.9, weight_decay=DECAY)
    return [Trained("naive", naive, run), stepped("ours", FusedLars(base, mask, eeta=1.0))]


class Model(nn.Module):
    """Holds parameters of given shapes."""

    def __init__(self, shapes: list[Shape]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(parameters(shapes))


def ema(shapes: list[Shape]) -> list[Contender]:
    """The plain form over state_dict(), as it is commonly written, out of place."""
    model, followed = Model(shapes), Model(shapes)
    average = copy.deepcopy(model)
    fused = FusedEMA(followed)

    def run() -> None:
        reference.ema_(list(average.state_dict().values()), list(model.state_dict().values()), decay=0.99)

    return [
        Trained("naive", list(model.parameters()), run),
        Trained("ours", list(followed.parameters()), lambda: fused.update(followed)),
    ]


def clip(shapes: list[Shape]) -> list[Contender]:
    """The norm is always above the limit."""
    return _clip(shapes, 1e-6)


def clip_not_needed(shapes: list[Shape]) -> list[Contender]:
    """The norm is below the limit."""
    return _clip(shapes, 1e30)


def _clip(shapes: list[Shape], limit: float) -> list[Contender]:
    naive, theirs, ours = parameters(shapes), parameters(shapes), parameters(shapes)
    fused = FusedClipNorm(ours, limit)
    return [
        Trained("naive", naive, lambda: reference.clip_norm_(grads(naive), limit)),
        Trained("foreach", theirs, lambda: nn.utils.clip_grad_norm_(theirs, limit, foreach=True)),
        Trained("ours", ours, lambda: fused.clip_norm(ours)),
    ]


def clip_adamw(shapes: list[Shape]) -> list[Contender]:
    """Clipping folded into the step, with a limit that the norm exceeds at every step."""
    naive, ours = parameters(shapes), parameters(shapes)
    step = _naive_adamw(naive)

    def run() -> None:
        reference.clip_norm_(grads(naive), 1e-6)
        step()

    optimizer = FusedAdamW(ours, weight_decay=DECAY)
    fused = FusedClipNorm(ours, 1e-6, optimizer=optimizer)

    def run_fused() -> None:
        fused.clip_norm(ours)
        optimizer.step()

    alone = FusedAdamW(parameters(shapes), weight_decay=DECAY)
    return [Trained("naive", naive, run), stepped("step alone", alone), Trained("ours", ours, run_fused)]


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


def row(op: str, name: str, elements: int, result: Race) -> list[str]:
    """One line of the table."""
    ours = result.of("ours")
    others = [timing.name for timing in result.timings if timing.name not in ("naive", "ours")]
    against = [f"{other}: {result.ratio(other, 'ours')}" for other in others]
    moved = elements * BYTES[op] / ours.best / 1e6
    ratio = result.ratio("naive", "ours")
    return [
        op,
        name,
        f"{result.of('naive').best:.2f}",
        f"{ours.best:.2f}",
        str(ratio),
        ratio.verdict,
        "; ".join(against) or "-",
        f"{result.of('naive').faults} / {ours.faults}",
        f"{100 * moved / result.bandwidth:.0f} %",
    ]


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--tuned-heap", action="store_true")
    options.add_argument("--keep-gradients", action="store_true")
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--sets", nargs="*", default=list(SETS))
    options.add_argument("--ops", nargs="*", default=list(CASES))
    chosen = options.parse_args()
    use_one_thread()
    rows = []
    for name in chosen.sets:
        shapes = SETS[name]()
        elements = sum(map(math.prod, shapes))
        for op in chosen.ops:
            contenders = CASES[op](shapes)
            result = race(contenders, chosen.rounds, repeat=max(1, min(3, 8_000_000 // elements)))
            rows.append(row(op, name, elements, result))
    header = ["op", "set", "naive ms", "ours ms", "naive/ours min / med (spread)", "verdict"]
    print(conditions())
    print()
    print(table([*header, "other/ours min / med (spread)", "page faults naive / ours", "bandwidth"], rows))


if __name__ == "__main__":
    main()
