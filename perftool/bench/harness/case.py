"""A benchmark: two forms of the same work, and how to measure them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from perftool.errors import PerfToolError

FormName = Literal["naive", "advised", "torch"]
FORM_NAMES: tuple[FormName, FormName] = ("naive", "advised")
ANYWHERE = ("cpu", "cuda", "hpu")
ASYNCHRONOUS = "needs a device with asynchronous execution"


@dataclass(frozen=True)
class Setting:
    """The size and the device of a measurement, and the rank of this process among ``ranks`` processes."""

    size: str
    device: torch.device
    rank: int = 0
    ranks: int = 1
    seed: int = 0

    def generator(self) -> torch.Generator:
        """Return a new random number generator on the CPU, always with the same seed."""
        return torch.Generator().manual_seed(self.seed)


@dataclass(frozen=True)
class Form:
    """One way to do the work. ``run`` does it once. After the same number of runs, all forms of a benchmark must
    return the same ``result``. ``step`` is recorded for the rules if they need more context than ``run`` has, such as
    the forward and backward passes before an optimizer's step.
    """

    title: str
    run: Callable[[], object]
    result: Callable[[], Sequence[torch.Tensor]]
    step: Callable[[], object] | None = None
    close: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Benchmark:
    """A piece of advice and a test of it. ``build(form, setting)`` builds one of the forms: ``naive`` with torch's
    defaults, ``advised`` with the advice followed, and, if ``torch_best`` is set, ``torch``, the fastest way in torch
    itself. ``rules`` are the codes of the rules that must fire on the trace of the naive form but not on that of the
    advised form. Without rules, only the ratio is judged.

    How it is measured: ``tolerance`` is the largest allowed difference between the results, relative to their largest
    value. ``clock`` is "cpu" (process CPU time of one thread) for arithmetic, and "wall" if the advice removes waiting.
    ``quantity`` is the number that the advice lowers. With ``separate_processes``, each form runs in its own processes,
    because the forms differ in ``environment`` or would share caches. Each of these processes runs its form
    ``runs_per_process`` times: once if the first run differs from later ones, for example because it compiles.
    ``ranks`` is the number of processes that run together. The benchmark can be measured on ``devices``; ``reason``
    explains why it cannot be measured on others, and ``unavailable`` why it cannot be measured on this machine.
    ``not_quick`` says what makes the benchmark too slow for ``--quick``.

    For the rules, ``traced_steps`` steps of ``traced_size`` are recorded, with Python functions if ``traced_stacks`` is
    set.

    Problems that need an asynchronous device are simulated: ``script`` is a file in ``perftool/bench/scripts``, which
    is run once with the argument ``naive`` and once with ``advised``. A step of the advised form does ``script_work``
    times as much work. ``settings`` is the name of a configuration file, which exists for each form and is copied next
    to its trace. If both runs print ``result NUMBER`` as their last line, the numbers must agree.
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
    separate_processes: bool = False
    runs_per_process: int = 1
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
        """The forms that are measured together."""
        return (*FORM_NAMES, "torch") if self.torch_best else FORM_NAMES


def simulated_only(name: str, rules: tuple[str, ...], summary: str, **fields: Any) -> Benchmark:
    """Return a benchmark for a problem that only occurs on the simulated device; it runs the script ``name``."""

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
