"""Graph replay against eager execution on the CPU, with the time it takes to compile from an empty cache.

python -m benchmarks.fused.graphs [--rounds N] [--cases WORD ...]
"""

from __future__ import annotations

import argparse
import copy
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.fused.measure import Contender, conditions, race, table, use_one_thread
from perftool.bench.harness.case import Setting
from perftool.bench.workloads.deep import deep_network
from perftool.fused import HPUGraph, ModuleCacher, graph, wrap_in_hpu_graph
from perftool.fused.dispatch import ENVIRONMENT_VARIABLE

Run = Callable[[], object]


@dataclass(frozen=True)
class Pair:
    """The same work eager, replayed operator by operator where that exists, and replayed compiled."""

    eager: Run
    interpreted: Run | None
    replayed: Run
    compile_seconds: Callable[[], float]


def deep(width: int, rows: int) -> tuple[nn.Module, Tensor]:
    """Sixty layers; narrow ones are all overhead, wide ones all arithmetic."""
    setting = Setting("", torch.device("cpu"))
    return deep_network(width, 20, setting), torch.randn(rows, width, generator=setting.generator())


def seconds(*graphs: HPUGraph) -> float:
    """What inductor took for these graphs together."""
    return sum(each.compile_seconds for each in graphs)


def replay_interpreted(captured: HPUGraph) -> None:
    """The first replay decides how all are done; choose the one without a compiler."""
    os.environ[ENVIRONMENT_VARIABLE] = "reference"
    captured.replay()
    del os.environ[ENVIRONMENT_VARIABLE]


def inference(width: int, rows: int) -> Pair:
    """`wrap_in_hpu_graph`, input copy included."""
    model, x = deep(width, rows)
    wrapped = wrap_in_hpu_graph(copy.deepcopy(model))
    plain = HPUGraph("cpu")
    with torch.no_grad(), graph(plain):
        model(x)
    replay_interpreted(plain)

    def eager() -> Tensor:
        with torch.no_grad():
            return model(x)

    wrapped(x)
    (call,) = wrapped.forward.graphs.values()
    return Pair(eager, plain.replay, lambda: wrapped(x), lambda: seconds(call.forward_graph))


def gradients(width: int, rows: int) -> Pair:
    """`ModuleCacher`: forward and backward replay, the rest of autograd stays."""
    model, x = deep(width, rows)
    cached = ModuleCacher()(model, inplace=False)

    def step(module: nn.Module) -> None:
        module.zero_grad(set_to_none=True)
        module(x).square().mean().backward()

    step(cached)
    (call,) = cached.forward.graphs.values()
    graphs = (call.forward_graph, call.backward_graph)
    return Pair(lambda: step(model), None, lambda: step(cached), lambda: seconds(*graphs))


def training(width: int, rows: int) -> Pair:
    """`graph` around forward, backward and an SGD step with momentum."""
    model, x = deep(width, rows)

    def stepper(module: nn.Module) -> Callable[[], None]:
        optimizer = torch.optim.SGD(module.parameters(), lr=1e-3, momentum=0.9, foreach=False)

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            module(x).square().mean().backward()
            optimizer.step()

        step()
        return step

    captured = [HPUGraph("cpu"), HPUGraph("cpu")]
    for each in captured:
        step = stepper(copy.deepcopy(model))
        with graph(each):
            step()
    replay_interpreted(captured[1])
    return Pair(stepper(model), captured[1].replay, captured[0].replay, lambda: seconds(captured[0]))


CASES: dict[str, Callable[[], Pair]] = {
    "inference small": lambda: inference(16, 4),
    "gradients small": lambda: gradients(16, 4),
    "training small": lambda: training(16, 4),
    "inference large": lambda: inference(512, 128),
    "training large": lambda: training(512, 128),
}


def row(name: str, rounds: int) -> list[str]:
    """One line of the table."""
    pair = CASES[name]()
    running = [Contender("eager", pair.eager), Contender("replayed", pair.replayed)]
    if pair.interpreted is not None:
        running.append(Contender("interpreted", pair.interpreted))
    result = race(running, rounds, repeat=20 if name.endswith("small") else 1)
    ratio = result.ratio("eager", "replayed")
    interpreted = "-" if pair.interpreted is None else str(result.ratio("eager", "interpreted"))
    return [
        name,
        f"{result.of('eager').best:.3f}",
        f"{result.of('replayed').best:.3f}",
        f"{ratio} {ratio.verdict}",
        interpreted,
        f"{pair.compile_seconds():.1f}",
    ]


def main() -> None:
    """Print the table of all cases, or of those whose names hold every word given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tuned-heap", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cases", nargs="*", default=[])
    options = parser.parse_args()
    use_one_thread()
    chosen = [name for name in CASES if all(word in name.split() for word in options.cases)]
    print(f"Graph replay; {conditions()}\n")
    header = ("case", "eager ms", "replayed ms", "eager/replayed", "eager/interpreted", "compile s")
    with tempfile.TemporaryDirectory() as empty:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = empty
        print(table(header, [row(name, options.rounds) for name in chosen]))


if __name__ == "__main__":
    main()
