"""all_reduce_gradients against one all-reduce for each parameter, on two gloo processes; wall time.

python -m benchmarks.fused.all_reduce [--rounds N] [--sets NAME ...]
"""

from __future__ import annotations

import argparse
import socket
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from benchmarks.fused.measure import conditions, table
from benchmarks.fused.shapes import SETS
from perftool.fused import all_reduce_gradients
from perftool.fused.reference.all_reduce import all_reduce_gradients as one_by_one

RANKS = 2
Reduction = Callable[[nn.Module], None]
FORMS: dict[str, Reduction] = {
    "each parameter": one_by_one,
    "one buffer": lambda model: all_reduce_gradients(model, torch.float32),
    "one buffer, bf16": lambda model: all_reduce_gradients(model, torch.bfloat16),
}


def model_of(name: str) -> nn.Module:
    """Parameters of a named set, with gradients."""
    model = nn.ParameterList([nn.Parameter(torch.zeros(shape)) for shape in SETS[name]()])
    for parameter in model:
        parameter.grad = torch.randn_like(parameter)
    return model


def measure(rank: int, port: int, name: str, rounds: int, results: mp.SimpleQueue) -> None:
    """Time the forms in turn; a barrier before each keeps one rank from waiting for the other within it."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    models = {form: model_of(name) for form in FORMS}
    times: dict[str, list[float]] = {form: [] for form in FORMS}
    for turn in range(rounds + 2):
        for form, reduce in FORMS.items():
            dist.barrier()
            start = time.perf_counter()
            reduce(models[form])
            if turn >= 2:
                times[form].append((time.perf_counter() - start) * 1e3)
    if rank == 0:
        results.put(times)
    dist.destroy_process_group()


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def row(name: str, rounds: int) -> list[str]:
    """One line of the table: best times, and the ratios of minima and medians to the first form."""
    results = mp.get_context("spawn").SimpleQueue()
    mp.spawn(measure, args=(free_port(), name, rounds, results), nprocs=RANKS)
    times = results.get()
    first, *others = FORMS
    ratios = [
        f"{min(times[first]) / min(times[form]):.2f}"
        f" / {statistics.median(times[first]) / statistics.median(times[form]):.2f}"
        for form in others
    ]
    return [f"{name} ({len(SETS[name]())} tensors)", *(f"{min(times[form]):.1f}" for form in FORMS), *ratios]


def main() -> None:
    """Print the table of all sets of shapes, or of those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sets", nargs="*", default=["resnet50", "2000 small"], choices=list(SETS))
    options = parser.parse_args()
    machine = conditions().replace("process CPU time", "wall time, two gloo ranks")
    print(f"all_reduce_gradients; {machine}\n")
    header = ("set", *(f"{form} ms" for form in FORMS), "each/buffer min / med", "each/bf16 min / med")
    print(table(header, [row(name, options.rounds) for name in options.sets]))


if __name__ == "__main__":
    main()
