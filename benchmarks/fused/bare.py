"""The least that any form over lists has to run: kernel calls on lists that are ready, with a look at nothing.

No optimizer can reach it: somebody has to fetch the gradients, and to see that they belong to what is remembered.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.fused.measure import Contender

Lists = list[list[Tensor]]
ADAMW = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-6}
SGD = {"momentum": 0.0, "weight_decay": 0.0, "dampening": 0.0, "nesterov": False, "maximize": False}
ROW = 64


def sgd(params: list[Tensor], grads: list[Tensor], buffers: list[Tensor], **options: float) -> None:
    """One call of the kernel of SGD."""
    torch._fused_sgd_(params, grads, buffers, **{**SGD, **options}, is_first_step=False)


def adamw(params: list[Tensor], grads: list[Tensor], moments: Lists, step: Tensor) -> None:
    """One call of the kernel of AdamW."""
    torch._fused_adamw_(params, grads, *moments, [], [step] * len(params), **ADAMW, amsgrad=False, maximize=False)


def adagrad(params: list[Tensor], grads: list[Tensor], sums: list[Tensor], step: Tensor) -> None:
    """One call of the kernel of Adagrad."""
    options = {"lr": 1e-3, "lr_decay": 0.0, "weight_decay": 0.01, "eps": 1e-10}
    torch._fused_adagrad_(params, grads, sums, [step] * len(params), **options, maximize=False)


def norm(tensors: list[Tensor]) -> Tensor:
    """The norm of all tensors, laid end to end."""
    return torch.linalg.vector_norm(torch.cat(tensors))


def row_norms(values: Tensor) -> Tensor:
    """[rows, 1] the norm of each row."""
    return torch.linalg.vector_norm(values, dim=1, keepdim=True)


def lamb(
    params: list[Tensor], grads: list[Tensor], moments: Lists, step: Tensor, update: Tensor, pieces: list[Tensor]
) -> None:
    """LAMB of tensors of ROW elements: their updates in memory that is ready."""
    norm(grads)
    weights = torch.cat(params).view(-1, ROW)
    torch.mul(weights, 0.01, out=update)
    adamw(pieces, grads, moments, step)
    update.mul_(row_norms(weights) / row_norms(update))
    sgd(params, pieces, [], lr=1e-3)


def lars(
    params: list[Tensor], grads: list[Tensor], buffers: list[Tensor], scaled: Tensor, pieces: list[Tensor]
) -> None:
    """LARS of tensors of ROW elements, and a step with momentum."""
    weights, values = torch.cat(params).view(-1, ROW), torch.cat(grads).view(-1, ROW)
    factors = row_norms(weights) / (row_norms(values) + row_norms(weights))
    torch.mul(values.add_(weights, alpha=0.01), factors, out=scaled)
    torch._foreach_copy_(grads, pieces)
    sgd(params, grads, buffers, lr=-1.0, momentum=0.9)


def calls(op: str, params: list[Tensor], states: Lists) -> Callable[[list[Tensor]], object] | None:
    """What to run with a list of gradients; None for an op that is not only such calls."""
    step = torch.tensor(5.0)
    simple: dict[str, Callable[[list[Tensor]], object]] = {
        "SGD": lambda grads: sgd(params, grads, states[0], lr=1e-3, momentum=0.9, weight_decay=0.01),
        "Adagrad": lambda grads: adagrad(params, grads, states[0], step),
        "AdamW": lambda grads: adamw(params, grads, states, step),
        "EMA": lambda grads: sgd(states[0], params, [], lr=-0.01, weight_decay=-1.0),
    }
    if op in simple or any(each.shape != (ROW,) for each in params):
        return simple.get(op)
    room = torch.zeros(len(params), ROW)
    pieces = list(room.unbind())
    rows: dict[str, Callable[[list[Tensor]], object]] = {
        "LAMB": lambda grads: lamb(params, grads, states, step, room, pieces),
        "LARS": lambda grads: lars(params, grads, states[0], room, pieces),
    }
    return rows.get(op)


def bare(op: str, params: list[Tensor], renew: Callable[[list[Tensor]], object]) -> list[Contender]:
    """The contender `bare` of an op; none for an op that is not only calls of kernels."""
    with torch.no_grad():
        run = calls(op, params, [[torch.zeros_like(param) for param in params] for _ in range(2)])
    if run is None:
        return []
    ready: list[Tensor] = []

    def prepare() -> None:
        ready.clear()
        renew(params)
        ready.extend(param.grad for param in params if param.grad is not None)

    return [Contender("bare", lambda: torch.no_grad()(run)(ready), prepare)]
