"""The three kernels under all optimizers, each in several stages.

| kernel | operands, lists of equal length |
|---|---|
| `sgd` | params, grads, momentum buffers (an empty list without momentum) |
| `adagrad` | params, grads, sums |
| `adamw` | params, grads, first moments, second moments |

All tensors of a call share device and dtype, and those of one parameter share their memory layout, which the
private kernels take for granted and do not check. Options are those of `perftool.fused.reference`, plus
`grad_scale`, a 0-dim tensor by which the gradients are divided first (they may be rewritten).

`fast` calls the private `torch._fused_*_`. `fallback` calls the public functions of `torch.optim` with
`fused=True`, which follow a private signature when it moves. `reference` runs the plain loop on pieces that
stay in the cache. `native`, on request only, is `perftool.fused.optimizers.native`. A stage counts as usable when its
result on a few elements is that of the plain loop.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adagrad import adagrad as functional_adagrad
from torch.optim.adamw import adamw as functional_adamw
from torch.optim.sgd import sgd as functional_sgd
from torch.utils._python_dispatch import _get_current_dispatch_mode

from perftool.fused import reference
from perftool.fused.dispatch import ANY_DEVICE, NATIVE, Implementation, always, choose, register
from perftool.fused.optimizers import native
from perftool.fused.optimizers.memory import is_dense, is_ordinary, linear

Kernel = Callable[..., None]
Tensors = list[Tensor]

STAGES = (NATIVE, "fast", "fallback", "reference")
PROBED = 67
PIECE = 256 * 1024
"""Elements per piece of a chunked loop: four operands in float32 are the 4 MiB that stay in a cache."""


FIRST, ENDLESS = 1.0, math.inf
"""The counts of steps that kernels are told: rates are worked out here, so that none has to be made at each step."""
_COUNTS = {count: torch.tensor(count, dtype=torch.float32, device="cpu") for count in (FIRST, ENDLESS)}


def _counts(count: float, params: Tensors, public: bool) -> Tensors:
    """The count for every entry; the public functions count themselves, each entry for itself."""
    if not public and params[0].is_cpu and _get_current_dispatch_mode() is None:
        return [_COUNTS[count]] * len(params)

    def one() -> Tensor:
        # A fill on the device itself: a copy from the host would make the step wait for the device.
        return torch.full((), count - public, dtype=torch.float32, device=params[0].device)

    return [one() for _ in params] if public else [one()] * len(params)


PUBLIC = {"fused": True, "foreach": False}
"""What the public functions need to be told to run a fused kernel."""


def _sgd(public: bool) -> Kernel:
    def kernel(
        params: Tensors, grads: Tensors, buffers: Tensors, *, grad_scale: Tensor | None = None, **options: Any
    ) -> None:
        options.update(PUBLIC if public else {}, maximize=False, grad_scale=grad_scale)
        if public:
            functional_sgd(params, grads, [*buffers] if buffers else [None] * len(params), **options)
        else:
            torch._fused_sgd_(params, grads, buffers, is_first_step=False, **options)

    return kernel


def _adagrad(public: bool) -> Kernel:
    def kernel(
        params: Tensors,
        grads: Tensors,
        sums: Tensors,
        *,
        step: int,
        lr: float,
        lr_decay: float,
        grad_scale: Tensor | None = None,
        **options: Any,
    ) -> None:
        options.update(PUBLIC if public else {}, maximize=False, grad_scale=grad_scale)
        launch = functional_adagrad if public else torch._fused_adagrad_
        rate = lr / (1 + (step - 1) * lr_decay)
        launch(params, grads, sums, _counts(FIRST, params, public), lr=rate, lr_decay=0.0, **options)

    return kernel


def _adamw(public: bool) -> Kernel:
    def kernel(
        params: Tensors,
        grads: Tensors,
        exp_avgs: Tensors,
        exp_avg_sqs: Tensors,
        *,
        step: int,
        lr: float,
        beta1: float,
        beta2: float,
        weight_decay: float,
        bias_correction: bool = True,
        **options: Any,
    ) -> None:
        # Of an endless run nothing is corrected: eps stays at the plain root, and the rate takes both corrections.
        correction = math.sqrt(1 - beta2**step) / (1 - beta1**step) if bias_correction else 1.0
        options.update(PUBLIC if public else {}, amsgrad=False, maximize=False, beta1=beta1, beta2=beta2)
        options.update(lr=lr * correction, weight_decay=weight_decay / correction)
        launch = functional_adamw if public else torch._fused_adamw_
        launch(params, grads, exp_avgs, exp_avg_sqs, [], _counts(ENDLESS, params, public), **options)

    return kernel


def pieces(tensors: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
    """Corresponding views of at most PIECE elements if all are memory of one dense layout, else the whole tensors."""
    first = tensors[0]
    whole = not all(map(is_ordinary, tensors)) or not is_dense(first)
    if whole or any(each.stride() != first.stride() for each in tensors):
        return [tuple(tensors)]
    return list(zip(*(torch.split(linear(each), PIECE) for each in tensors), strict=True))


def _chunked(plain: Kernel) -> Kernel:
    def kernel(params: Tensors, *operands: Tensors, grad_scale: Tensor | None = None, **options: Any) -> None:
        if grad_scale is not None:
            for grad in operands[0]:
                grad.div_(grad_scale)
        used = [operand for operand in operands if operand]
        missing: list[Tensors] = [[]] * (len(operands) - len(used))
        for tensors in zip(params, *used, strict=True):
            for views in pieces(tensors):
                plain(*([view] for view in views), *missing, **options)

    return kernel


def _native(name: str, step: Callable[..., bool]) -> Kernel:
    def kernel(params: Tensors, *operands: Tensors, **options: Any) -> None:
        if not step(params, *operands, **options):
            best_kernel(name, "fast", params[0])(params, *operands, **options)

    return kernel


_KERNELS: dict[tuple[str, str], Kernel] = {
    ("sgd", "fast"): _sgd(public=False),
    ("sgd", "fallback"): _sgd(public=True),
    ("sgd", "reference"): _chunked(reference.sgd_),
    ("adagrad", "fast"): _adagrad(public=False),
    ("adagrad", "fallback"): _adagrad(public=True),
    ("adagrad", "reference"): _chunked(reference.adagrad_),
    ("adamw", "fast"): _adamw(public=False),
    ("adamw", "fallback"): _adamw(public=True),
    ("adamw", "reference"): _chunked(reference.adamw_),
    ("sgd", NATIVE): _native("sgd", native.sgd),
    ("adagrad", NATIVE): _native("adagrad", native.adagrad),
    ("adamw", NATIVE): _native("adamw", native.adamw),
}

_PROBES: dict[str, tuple[int, dict[str, Any]]] = {
    "sgd": (3, {"lr": 0.5, "momentum": 0.5, "weight_decay": 0.5, "dampening": 0.0, "nesterov": True}),
    "adagrad": (3, {"step": 3, "lr": 0.5, "lr_decay": 0.5, "weight_decay": 0.5, "eps": 0.5}),
    "adamw": (4, {"step": 3, "lr": 0.5, "beta1": 0.5, "beta2": 0.75, "eps": 0.5, "weight_decay": 0.5}),
}
"""Per kernel the number of operands and the options with which a stage is tried."""


def kernel(name: str, stage: str) -> Kernel:
    """The kernel `sgd`, `adagrad` or `adamw` of one of the STAGES."""
    return _KERNELS[name, stage]


@functools.cache
def obstacle(name: str, stage: str, device_type: str, dtype: torch.dtype = torch.float32) -> str | None:
    """None when a stage computes what the plain loop does, else what is wrong with it.

    It is asked per dtype: the SGD kernel of torch 2.13 for CPUs is wrong in bfloat16 and float16.
    """
    try:
        result, expected = (_probe(name, each, device_type, dtype) for each in (stage, "reference"))
    except (AttributeError, TypeError, RuntimeError) as error:
        return f"the {stage} {name} kernel does not run: {str(error).splitlines()[0]}"
    tolerance = 8 * torch.finfo(dtype).eps
    if not torch.allclose(result, expected, rtol=tolerance, atol=tolerance):
        return f"the {stage} {name} kernel computes something else than the plain loop in {dtype}"
    return None


@torch.no_grad()
def _probe(name: str, stage: str, device_type: str, dtype: torch.dtype) -> Tensor:
    count, options = _PROBES[name]
    # Long enough for a vectorised loop and what it leaves over.
    values = torch.linspace(0.5, 1.5, PROBED, device=device_type).to(dtype)
    operands = [values * (1 + i) for i in range(count)]
    scale = torch.full((), 2.0, device=device_type)
    kernel(name, stage)(*([operand] for operand in operands), **options, grad_scale=scale)
    return torch.stack([operand for i, operand in enumerate(operands) if i != 1]).double()


def best_kernel(name: str, stage: str, like: Tensor) -> Kernel:
    """The kernel of a stage, or of the next one that is right for tensors of this device and dtype."""
    for each in STAGES[STAGES.index(stage) :]:
        if each == "reference" or obstacle(name, each, like.device.type, like.dtype) is None:
            return kernel(name, each)
    raise ValueError(f"{stage!r} is none of {', '.join(STAGES)}")


def has_fast_kernel(op: str, name: str, like: Tensor, requested: str | None) -> bool:
    """Whether the private kernel `name` is what `op` would run on tensors of this device and dtype."""
    chosen = choose(op, like.device.type, requested).name
    return chosen == "fast" and obstacle(name, "fast", like.device.type, like.dtype) is None


def register_stages(op: str, name: str) -> None:
    """Register the stages of the kernel under an optimizer as implementations of `op`."""
    native.register_native_kernels(op)
    for device_type in ("cpu", "cuda"):
        for stage in ("fast", "fallback"):
            probe = functools.partial(obstacle, name, stage, device_type)
            register(Implementation(op, stage, (device_type,), probe))
    register(Implementation(op, "reference", ANY_DEVICE, always))
