"""The loss is read in every step, or only in the last of twenty."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import torch

from perftool.bench.harness.case import ASYNCHRONOUS, Benchmark, Form, FormName, Setting

_STEPS = 20
_READ_EVERY = {"naive": 1, "advised": _STEPS}
# Values per batch, rows of the weights, and matmuls per step. Preparing a batch on the host takes about half as long as
# a step on the device.
_SIZES = {"small": (1 << 18, 384, 12), "large": (1 << 20, 768, 8)}


class _Device:
    """A thread that works through its own queue, like a device. While it runs kernels, PyTorch releases the GIL for the
    host."""

    def __init__(self, rows: int, products: int, setting: Setting) -> None:
        self._queue = ThreadPoolExecutor(max_workers=1)
        self._weights = torch.randn(rows, rows, generator=setting.generator()) / rows**0.5
        self._products = products

    def submit(self, batch: torch.Tensor) -> Future[torch.Tensor]:
        """Queue a step; its loss is ready later."""
        return self._queue.submit(self._step, batch)

    def close(self) -> None:
        """Stop the thread."""
        self._queue.shutdown()

    def _step(self, batch: torch.Tensor) -> torch.Tensor:
        rows = self._weights.shape[0]
        state = batch[: rows * rows].reshape(rows, rows)
        for _ in range(self._products):
            state = torch.tanh(state @ self._weights)
        return state.square().mean()


def build(form: FormName, setting: Setting) -> Form:
    """Twenty steps with batches that the host prepares; the loss is read in each step, or only in the last step."""
    values, rows, products = _SIZES[setting.size]
    device = _Device(rows, products, setting)
    raw = torch.randn(values, generator=setting.generator())
    losses: list[torch.Tensor] = []

    def run() -> None:
        pending = []
        for step in range(1, _STEPS + 1):
            # The sort imitates the work of a data loader.
            pending.append(device.submit(torch.sort(raw.roll(step)).values))
            if step % _READ_EVERY[form] == 0:
                float(pending[-1].result())
        losses[:] = [loss.result() for loss in pending]

    often = "in every step" if form == "naive" else f"every {_READ_EVERY[form]} steps"
    return Form(f"the loss read {often}; a thread imitates the device", run, lambda: losses, close=device.close)


BENCHMARK = Benchmark(
    name="scalar_reads",
    rules=("SYN101",),
    summary="The loss read in every twentieth step instead of in every step",
    build=build,
    sizes=tuple(_SIZES),
    traced_size="small",
    tolerance=0.0,
    clock="wall",
    devices=("cpu",),
    reason=f"{ASYNCHRONOUS}; here a thread imitates such a device",
    script="scalar_reads.py",
    most_rounds=12,
)
