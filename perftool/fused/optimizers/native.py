"""The native kernels: `native.cpp`, built on request by PyTorch's own tools and kept for the next process.

They are never needed and never chosen by themselves: `backend="native"`, or `PERFTOOL_FUSED_BACKEND=native`, asks for
them. Where they cannot be built, and for tensors that they do not take, the other implementations do the work. A
build takes about ten seconds of one core; the file lies in the folder of PyTorch's extensions (`TORCH_EXTENSIONS_DIR`)
under a name made of the source, the flags and the versions, and runs on every x86-64 processor.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import cpp_extension

from perftool.fused.dispatch import Implementation, register

Tensors = list[Tensor]

SOURCE = Path(__file__).with_name("native.cpp")
# Without -fopenmp for the linker: the one library of threads is then PyTorch's own.
FLAGS = ("-O3", "-fopenmp", "-fno-math-errno", "-fno-trapping-math")


def obstacle() -> str | None:
    """None when the kernels are built, which the first call does, else in one line why they cannot be."""
    try:
        _module()
    except NativeError as error:
        return str(error)
    return None


class NativeError(RuntimeError):
    """The native kernels cannot be built or loaded here; the text says why."""


@functools.cache
def _attempt() -> Any:
    """The module, or the NativeError that every later attempt would meet too."""
    if sys.platform != "linux":
        return NativeError("the native kernels are built on Linux only")
    try:
        kept = _place()
        return _load(kept) if kept.exists() else _build(kept)
    except (RuntimeError, OSError, ImportError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return NativeError(f"the native kernels could not be built: {reason}")


def _module() -> Any:
    found = _attempt()
    if isinstance(found, NativeError):
        raise found
    return found


def _place() -> Path:
    """Where the built file of this source, these flags, this PyTorch and this Python lies."""
    parts = (SOURCE.read_text(encoding="utf-8"), *FLAGS, torch.__version__, sys.version)
    name = "perftool_native_" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    folder = os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()
    return Path(folder) / f"{name}.so"


def _build(kept: Path) -> Any:
    # In a folder of its own: processes that build at the same time do not wait for a lock that one may have left.
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        module = cpp_extension.load(kept.stem, [str(SOURCE)], extra_cflags=list(FLAGS), build_directory=folder)
        os.replace(Path(folder) / kept.name, kept)
    return module


def _load(path: Path) -> Any:
    found = importlib.util.spec_from_file_location(path.stem, path)
    if found is None or found.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def register_native_kernels(op: str) -> Implementation:
    """Register the native kernels as the implementation `native` of an op."""
    return register(Implementation(op, "native", ("cpu",), obstacle))


def is_watched() -> bool:
    """Whether a mode of PyTorch records or replaces operators: it would not see what these kernels do."""
    return bool(_module().is_watched())


def gradients(params: Tensors, sizes: list[int], entries: list[Any], states: dict[str, Tensors]) -> Tensors | None:
    """The gradients of contiguous float32 parameters with these sizes and states, None if anything is different."""
    found: Tensors | None = _module().gradients(params, sizes, entries, tuple(states), list(states.values()))
    return found


def norm(tensors: Tensors) -> Tensor | None:
    """The 2-norm of all tensors together, 0-dim; None if they are not for these kernels."""
    total = _run("norm", tensors)
    return None if total is None else torch.tensor(total)


def scale(tensors: Tensors, factor: float) -> bool:
    """Multiply all tensors in place; False if they are not for these kernels, and nothing was written."""
    return _run("scale", tensors, factor) is not None and _written(tensors)


def lerp(averages: Tensors, values: Tensors, weight: float) -> bool:
    """Move the averages by `weight` of their distance towards the values; False as `scale`."""
    return _run("lerp", averages, values, weight) is not None and _written(averages)


def lars(params: Tensors, grads: Tensors, *numbers: float) -> bool:
    """Scale the gradients of adapted parameters, with lr, decay, eeta and eps; False as `scale`."""
    return _run("lars", params, grads, *numbers) is not None and _written(grads)


def lamb(*operands: Any) -> float | None:
    """A step of LAMB: the number of parameters that are all zero; None as `norm`. Operands as in `native.cpp`."""
    zeros = _run("lamb", *operands)
    if zeros is not None:
        _written(operands[1])  # the gradients, which clipping may have divided
    return zeros


def _run(name: str, *operands: Any) -> float | None:
    found: float | None = None if is_watched() else getattr(_module(), name)(*operands)
    return found


def _written(tensors: Tensors) -> bool:
    torch.autograd.graph.increment_version(tensors)
    return True


def factor(grad_scale: Tensor | None) -> float:
    """What gradients are multiplied by that shall be divided by `grad_scale`."""
    return 1.0 if grad_scale is None else 1.0 / float(grad_scale)


def sgd(
    params: Tensors,
    grads: Tensors,
    buffers: Tensors,
    *,
    lr: float,
    momentum: float,
    weight_decay: float,
    dampening: float,
    nesterov: bool,
    grad_scale: Tensor | None = None,
) -> bool:
    """The kernel `sgd` of `perftool.fused.optimizers.kernels`; False as `scale`."""
    by = factor(grad_scale)
    if not momentum:
        return _run("descend", params, grads, lr, weight_decay, by) is not None
    return _run("sgd", params, grads, buffers, lr, momentum, weight_decay, 1 - dampening, nesterov, by) is not None


def adagrad(
    params: Tensors,
    grads: Tensors,
    sums: Tensors,
    *,
    step: int,
    lr: float,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    grad_scale: Tensor | None = None,
) -> bool:
    """The kernel `adagrad`; False as `scale`."""
    rate = lr / (1 + (step - 1) * lr_decay)
    return _run("adagrad", params, grads, sums, rate, weight_decay, eps, factor(grad_scale)) is not None


def adamw(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    *,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    bias_correction: bool = True,
    grad_scale: Tensor | None = None,
) -> bool:
    """The kernel `adamw`; False as `scale`."""
    size = lr * math.sqrt(1 - beta2**step) / (1 - beta1**step) if bias_correction else lr
    shrink, by = 1 - lr * weight_decay, factor(grad_scale)
    return _run("adamw", params, grads, exp_avgs, exp_avg_sqs, size, beta1, beta2, eps, shrink, by) is not None
