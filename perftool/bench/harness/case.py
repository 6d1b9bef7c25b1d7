"""What a benchmark is: two forms of the same work, and how they are to be measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from perftool.errors import PerfToolError

FormName = Literal["naive", "advised"]
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
    """A recommendation to be proved. ``build(form, setting)`` makes one of the two forms.

    ``rules`` are the codes that must fire on the trace of the naive form and be quiet on the other. ``tolerance`` is
    the largest difference of the results, relative to their largest value. ``clock`` is "cpu" (process CPU time of one
    thread) for arithmetic, and "wall" where waiting is what the advice removes. ``quantity`` is what the advice is to
    lower. ``apart`` gives each form processes of its own, because they differ in ``environment`` or share caches, and
    ``runs_apart`` is how often each process runs its form: more than once where the first run is like the others.
    ``ranks`` is the number of processes that work together. ``traced_size`` is the one recorded for the rules.
    ``devices`` are those on which there is something to measure, ``reason`` says why not elsewhere, and ``unavailable``
    why not on this machine. With ``script`` the rules get the traces of that file of ``perftool/bench/scripts`` on a
    simulated Gaudi, run once with the argument ``naive`` and once with ``advised``, instead of recorded ones; it is for
    problems that only a device with a queue of its own has. ``script_work`` is how many times more work a step of the
    advised script does. Where both forms end with a line ``result NUMBER``, the numbers must agree, too.
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
    most_rounds: int = 40
    script: str | None = None
    script_work: float = 1.0
    environment: Callable[[FormName], dict[str, str]] = lambda _: {}
    unavailable: Callable[[], str | None] = lambda: None


def simulated_only(name: str, rules: tuple[str, ...], summary: str) -> Benchmark:
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
        tolerance=1e-3,
        devices=(),
        reason=ASYNCHRONOUS,
        script=f"{name}.py",
    )
