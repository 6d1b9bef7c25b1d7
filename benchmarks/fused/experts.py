"""mixture_of_experts against the loop over expert modules and the static loop over all experts.

python -m benchmarks.fused.experts [--tuned-heap] [--rounds N] [--cases WORD ...]
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

from benchmarks.fused.measure import Contender, conditions, race, table, use_one_thread
from perftool.bench.harness.case import Setting
from perftool.bench.workloads.experts import ExpertLoop, Mixture, routed_tokens
from perftool.fused import mixture_of_experts
from perftool.fused.reference.moe import dense_mixture_of_experts
from perftool.fused.reference.moe import mixture_of_experts as reference

CASES = {
    "documented": Mixture(32, 64, 224, 8, 2),
    "documented-1-token": Mixture(1, 64, 224, 8, 2),
    "decode": Mixture(1, 1024, 3584, 8, 2),
    "128-tokens": Mixture(128, 1024, 3584, 8, 2),
    "512-tokens": Mixture(512, 1024, 3584, 8, 2),
    "512-tokens-bf16": Mixture(512, 1024, 3584, 8, 2, torch.bfloat16),
    "1024-tokens-bf16": Mixture(1024, 1024, 3584, 8, 2, torch.bfloat16),
    "many-experts": Mixture(256, 256, 512, 64, 8),
}

# What is compared: (slower, faster).
PAIRS = (
    ("modules", "ours permuted"),
    ("loop", "ours"),
    ("loop", "ours w12"),
    ("static", "ours"),
    ("static linear", "ours permuted"),
)


def contenders(mixture: Mixture) -> list[Contender]:
    """All forms on the same weights and tokens."""
    torch.manual_seed(0)
    block = ExpertLoop(mixture)
    common = routed_tokens(mixture, Setting("", torch.device("cpu")))
    # The modules' own storage, [out, in]; the others below are copies stored as [in, out].
    linear = [block.weights(name) for name in ("gate", "up", "down")]
    views = tuple([weight.t() for weight in part] for part in linear)
    w1, w2, w3 = ([weight.contiguous() for weight in part] for part in views)
    w12 = [torch.cat(pair, dim=1) for pair in zip(w1, w2, strict=True)]
    last = mixture.experts - 1
    return [
        Contender("modules", lambda: block(*common)),
        Contender("static", lambda: dense_mixture_of_experts(*common, w1, w2, w3, "gelu")),
        Contender("loop", lambda: reference(*common, w1, w2, w3, "gelu")),
        Contender("ours", lambda: mixture_of_experts(*common, w1, w2, w3, False, "gelu", 0, last)),
        Contender("ours w12", lambda: mixture_of_experts(*common, w12, w3, False, "gelu", 0, last)),
        Contender("static linear", lambda: dense_mixture_of_experts(*common, views[0], views[1], views[2], "gelu")),
        Contender("ours permuted", lambda: mixture_of_experts(*common, *linear, True, "gelu", 0, last)),
    ]


def row(name: str, rounds: int) -> list[str]:
    """One line of the table; the error is against the modules, relative to their largest output."""
    mixture = CASES[name]
    running = contenders(mixture)
    repeat = max(1, 2**22 // (mixture.tokens * mixture.hidden * mixture.ffn))
    result = race(running, rounds, min(repeat, 20))
    outputs = {each.name: output for each in running if isinstance(output := each.run(), Tensor)}
    scale = outputs["modules"].abs().max()
    error = max(((outputs[name] - outputs["modules"]).abs().max() / scale).item() for name in outputs)
    ratios = [result.ratio(*pair) for pair in PAIRS]
    return [
        name,
        *(f"{timing.best:.3f}" for timing in result.timings),
        *(f"{ratio} {ratio.verdict}" for ratio in ratios),
        f"{error:.0e}",
    ]


def main() -> None:
    """Print the table of all cases, or of those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tuned-heap", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cases", nargs="*", default=[])
    options = parser.parse_args()
    use_one_thread()
    print(f"mixture_of_experts, forward; {conditions()}\n")
    header = ("case", "modules ms", "static ms", "loop ms", "ours ms", "ours w12 ms", "static linear ms",
              "ours permuted ms", *(f"{slower} / {faster}" for slower, faster in PAIRS), "error")  # fmt: skip
    with torch.no_grad():
        rows = [row(name, options.rounds) for name in CASES if not options.cases or name in options.cases]
    print(table(header, rows))


if __name__ == "__main__":
    main()
