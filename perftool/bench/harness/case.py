"""What a benchmark is: two forms of the same work, and how they are to be measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from perftool.errors import PerfToolError

FormName = Literal["naive", "advised", "torch"]
# The two that the rules look at.
FORM_NAMES: tuple[FormName, FormName] = ("naive", "advised")
# Where a benchmark can be measured for real.
ANYWHERE = ("cpu", "cuda", "hpu")
ASYNCHRONOUS = "needs a device with asynchronous execution"


@dataclass(frozen=True)
class Setting:
    """Where and how large: ``size`` is one of the benchmark's; ``folder`` is the place for its files."""

    size: str
    device: torch.device
    rank: int = 0
    ranks: int = 1
    seed: int = 0

    def generator(self) -> torch.Generator:
        """A generator of random numbers on the CPU, in the same state each time it is asked for."""
        return torch.Generator().manual_seed(self.seed)


@dataclass(frozen=True)
class Form:
    """One way to do the work. ``run`` does it once; after as many runs of both forms, ``result`` gives what must agree.

    ``step`` is what is recorded for the rules, when they need more around the work than ``run`` has, such as the
    forward and backward pass around an optimizer.
    """

    title: str
    run: Callable[[], object]
    result: Callable[[], Sequence[torch.Tensor]]
    step: Callable[[], object] | None = None
    close: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Benchmark:
    """A recommendation to be proved. ``build(form, setting)`` makes one of the forms: ``naive`` as people write it with
    torch's defaults, ``advised`` as the guide says, and with ``torch_best`` also ``torch``, the best of torch's own.

    ``rules`` are the codes that must fire on the trace of the naive form and be quiet on the other; without any, no
    trace gives the advice away, and only the ratio speaks.

    Measured: ``tolerance`` is the largest difference of the results, relative to their largest value. ``clock`` is
    "cpu" (process CPU time of one thread) for arithmetic, and "wall" where waiting is what the advice removes.
    ``quantity`` is what the advice is to lower. ``apart`` gives each form processes of its own, because they differ in
    ``environment`` or share caches, and ``runs_apart`` is how often each process runs its form: more than once where
    the first run is like the others. ``ranks`` is the number of processes that work together. ``devices`` are those on
    which there is something to measure, ``reason`` says why not elsewhere, ``unavailable`` why not on this machine, and
    ``not_quick`` what takes too long for ``--quick``.

    Recorded for the rules: ``traced_steps`` steps of ``traced_size``, with Python's functions if ``traced_stacks``.

    Simulated instead, for problems that only a device with a queue of its own has: ``script`` is a file of
    ``perftool/bench/scripts``, run with the argument ``naive`` and with ``advised``. ``script_work`` is how many times
    more work a step of the advised form does, and ``settings`` the configuration file that a form reads from the folder
    of its name and leaves beside its trace. Where both end with a line ``result NUMBER``, the numbers must agree.
    """

    name: str
    rules: tuple[str, ...]
    summary: str
    build: Callable[[FormName, Setting], Form]
    sizes: tuple[str, ...]
    traced_size: str
    tolerance: float
    clock: Literal["cpu", "wall"] = "cpu"
    quantity: Literal["time", "memory"] = "time"
    apart: bool = False
    runs_apart: int = 1
    ranks: int = 1
    devices: tuple[str, ...] = ANYWHERE
    reason: str = ""
    tuned_heap: bool = False
    traced_steps: int = 3
    traced_stacks: bool = False
    most_rounds: int = 40
    script: str | None = None
    script_work: float = 1.0
    settings: str | None = None
    torch_best: bool = False
    not_quick: str = ""
    environment: Callable[[FormName], dict[str, str]] = lambda _: {}
    unavailable: Callable[[], str | None] = lambda: None

    @property
    def timed_forms(self) -> tuple[FormName, ...]:
        """The forms that are measured beside each other."""
        return (*FORM_NAMES, "torch") if self.torch_best else FORM_NAMES


def simulated_only(name: str, rules: tuple[str, ...], summary: str, **fields: Any) -> Benchmark:
    """A benchmark with nothing to measure where the host computes everything itself: only its script can show it."""

    def build(form: FormName, setting: Setting) -> Form:
        raise PerfToolError(f"{name}: {ASYNCHRONOUS}")

    return Benchmark(
        name=name,
        rules=rules,
        summary=summary,
        build=build,
        sizes=("script",),
        traced_size="script",
        devices=(),
        reason=ASYNCHRONOUS,
        script=f"{name}.py",
        **{"tolerance": 1e-3, **fields},
    )
