"""FusedSDPA against plain attention and against PyTorch's own, in time and in peak memory.

python -m benchmarks.fused.attention [--tuned-heap] [--rounds N] [--cases WORD ...] [--short]

With --short: calls of few microseconds, of which the work around PyTorch's call is a part, each in a row of CALLS.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.fused.measure import Contender, conditions, race, table, use_one_thread
from perftool.bench.harness.recording import peak_memory
from perftool.bench.workloads.attention import spread_lengths
from perftool.fused import FusedSDPA
from perftool.fused.reference.attention import attention

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
MIB = 2**20
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Case:
    """A shape to attend over; `padded` names a choice of uneven lengths, see `lengths_of`."""

    dtype: torch.dtype
    batch: int
    heads: int
    tokens: int
    causal: bool
    backward: bool
    padded: str = ""

    @property
    def name(self) -> str:
        """As the table names it."""
        words = [str(self.dtype).removeprefix("torch."), f"{self.batch}x{self.heads}x{self.tokens}x64"]
        words += ["padded", self.padded] if self.padded else []
        words += ["causal" if self.causal else "full", "fwd+bwd" if self.backward else "fwd"]
        return " ".join(words)


SHAPES = ((4, 8, 128), (4, 8, 256), (2, 8, 512), (1, 8, 1024), (1, 8, 2048))
CASES = [
    Case(dtype, *shape, causal, backward)
    for dtype in (torch.float32, torch.bfloat16)
    for shape in SHAPES
    for causal in (True, False)
    for backward in (False, True)
] + [
    Case(dtype, 8, 8, 512, True, False, padded)
    for dtype in (torch.float32, torch.bfloat16)
    for padded in ("spread", "random")
]


def lengths_of(case: Case) -> Tensor:
    """Valid lengths, the same in each run.

    `spread`: evenly from 2 tokens to all, mean 257 of 512. `random`: 16 to all, mean 334 (244, 460, 485, 165,
    332, 438, 232 and 320).
    """
    if case.padded == "spread":
        return spread_lengths(case.batch, case.tokens)
    generator = torch.Generator().manual_seed(0)
    return torch.randint(16, case.tokens + 1, (case.batch,), generator=generator)


def attentions(case: Case) -> dict[str, Attention]:
    """The contenders as functions of q, k and v."""
    if not case.padded:
        return {
            "plain": lambda q, k, v: attention(q, k, v, None, case.causal)[0],
            "torch": lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=case.causal),
            "ours": lambda q, k, v: FusedSDPA.apply(q, k, v, None, 0.0, case.causal),
        }
    lengths = lengths_of(case)
    visible = torch.arange(case.tokens) < lengths[:, None]
    mask = visible[:, None, None, :] & torch.ones(case.tokens, case.tokens, dtype=torch.bool).tril()
    return {
        "plain": lambda q, k, v: attention(q, k, v, mask)[0],
        "torch": lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, attn_mask=mask),
        "ours": lambda q, k, v: FusedSDPA.apply(q, k, v, None, 0.0, True, None, "None", None, lengths, "right"),
    }


def contenders(case: Case) -> list[Contender]:
    """One run each: forward, or forward and backward."""
    torch.manual_seed(0)
    shape = (case.batch, case.heads, case.tokens, 64)
    q, k, v = (torch.randn(shape, dtype=case.dtype, requires_grad=case.backward) for _ in range(3))
    upstream = torch.randn(shape, dtype=case.dtype)

    def runner(function: Attention) -> Callable[[], object]:
        if case.backward:
            return lambda: torch.autograd.grad(function(q, k, v), (q, k, v), upstream)
        return lambda: function(q, k, v)

    return [Contender(name, runner(function)) for name, function in attentions(case).items()]


def row(case: Case, rounds: int) -> list[str]:
    """One line of the table."""
    running = contenders(case)
    result = race(running, rounds, repeat=max(1, 2048 // case.tokens))
    better = min(("plain", "torch"), key=lambda name: result.of(name).best)
    times = [f"{result.of(each.name).best:.2f}" for each in running]
    peaks = [f"{peak_memory(each.run, CPU) / MIB:.1f}" for each in running]
    against_better = result.ratio(better, "ours")
    return [
        case.name,
        *times,
        str(result.ratio("plain", "ours")),
        f"{against_better} {against_better.verdict}",
        " / ".join(peaks),
    ]


CALLS = 200
SHORT = ((1, 1), (1, 128), (16, 16), (64, 64), (1, 1024))
"""Queries and keys of 8 heads of 64 elements."""


def passed_on(
    q: Tensor, k: Tensor, v: Tensor, mask: object, dropout_p: float, causal: bool, scale: object, softmax_mode: str,
    recompute_mode: object, valid_seq_len: object, seq_padding_type: str, dropout_mask: bool, probs: bool, /,
) -> Tensor:  # fmt: skip
    """The least that a function of thirteen arguments can do: nothing but PyTorch's call."""
    return functional.scaled_dot_product_attention(q, k, v, None, 0.0, causal)


def shortest(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same, and the sum that tells of a NaN."""
    output = functional.scaled_dot_product_attention(q, k, v)
    return output if math.isfinite(q.sum()) else output * math.nan


def short_row(queries: int, keys: int, rounds: int) -> list[str]:
    """Microseconds of a call, and how much of PyTorch's speed is left."""
    q, k, v = (torch.randn(1, 8, tokens, 64) for tokens in (queries, keys, keys))
    rest = (None, 0.0, False, None, "None", None, None, "left", False, False)
    calls: dict[str, Callable[[], object]] = {
        "torch": lambda: functional.scaled_dot_product_attention(q, k, v),
        "passed on": lambda: passed_on(q, k, v, *rest),
        "and its NaN seen": lambda: shortest(q, k, v),
        "ours, 3 arguments": lambda: FusedSDPA.apply(q, k, v),
        "ours, 13 arguments": lambda: FusedSDPA.apply(q, k, v, *rest),
    }

    def in_a_row(call: Callable[[], object]) -> Callable[[], object]:
        return lambda: [call() for _ in range(CALLS)] and None

    result = race([Contender(name, in_a_row(call)) for name, call in calls.items()], rounds)
    times = [f"{1e3 * result.of(name).best / CALLS:.1f}" for name in calls]
    ratios = [f"{result.of('torch').best / result.of(name).best:.2f}" for name in [*calls][1:]]
    return [f"{queries} x {keys}", *times, *ratios]


def main() -> None:
    """Print the table of all cases, or of those whose names hold every word given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tuned-heap", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cases", nargs="*", default=[])
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    use_one_thread()
    chosen = [case for case in CASES if all(word in case.name.split() for word in options.cases)]
    print(f"FusedSDPA; {conditions()}\n")
    if options.short:
        forms = ("passed on", "and its NaN seen", "ours, 3 arguments", "ours, 13 arguments")
        times, ratios = (f"{each} us" for each in ("torch", *forms)), (f"torch / {each}" for each in forms)
        print(table(("queries x keys", *times, *ratios), [short_row(*shape, options.rounds) for shape in SHORT]))
        return
    header = ("case", "plain ms", "torch ms", "ours ms", "plain/ours min / med (spread)",
              "better of plain and torch / ours", "peak MiB plain / torch / ours")  # fmt: skip
    print(table(header, [row(case, options.rounds) for case in chosen]))


if __name__ == "__main__":
    main()
