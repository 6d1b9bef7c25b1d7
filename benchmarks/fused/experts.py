"""mixture_of_experts against the loop over expert modules and the static loop over all experts.

python -m benchmarks.fused.experts [--tuned-heap] [--rounds N] [--cases WORD ...]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.fused.measure import Contender, conditions, race, table, use_one_thread
from perftool.fused import mixture_of_experts
from perftool.fused.reference.moe import dense_mixture_of_experts
from perftool.fused.reference.moe import mixture_of_experts as reference


@dataclass(frozen=True)
class Case:
    """Sizes of a mixture; k experts for each token."""

    name: str
    tokens: int
    hidden: int
    ffn: int
    experts: int
    k: int
    dtype: torch.dtype = torch.float32


CASES = (
    Case("documented", 32, 64, 224, 8, 2),
    Case("documented-1-token", 1, 64, 224, 8, 2),
    Case("decode", 1, 1024, 3584, 8, 2),
    Case("128-tokens", 128, 1024, 3584, 8, 2),
    Case("512-tokens", 512, 1024, 3584, 8, 2),
    Case("512-tokens-bf16", 512, 1024, 3584, 8, 2, torch.bfloat16),
    Case("1024-tokens-bf16", 1024, 1024, 3584, 8, 2, torch.bfloat16),
    Case("many-experts", 256, 256, 512, 64, 8),
)

# What is compared: (slower, faster).
PAIRS = (
    ("modules", "ours permuted"),
    ("loop", "ours"),
    ("loop", "ours w12"),
    ("static", "ours"),
    ("static linear", "ours permuted"),
)


class Expert(nn.Module):
    """Gate, up and down projections, as model code has them."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.gate = nn.Linear(case.hidden, case.ffn, bias=False, dtype=case.dtype)
        self.up = nn.Linear(case.hidden, case.ffn, bias=False, dtype=case.dtype)
        self.down = nn.Linear(case.ffn, case.hidden, bias=False, dtype=case.dtype)
        self.activation = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, hidden] to the same."""
        result: Tensor = self.down(self.activation(self.gate(x)) * self.up(x))
        return result


class Block(nn.Module):
    """The dynamic loop of published Mixtral code: each chosen expert, on the tokens that chose it."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.experts = nn.ModuleList([Expert(case) for _ in range(case.experts)])

    def forward(self, x: Tensor, routing: Tensor, weights: Tensor) -> Tensor:
        """The weighted sum of the chosen experts' outputs."""
        output = torch.zeros_like(x)
        chosen = nn.functional.one_hot(routing, len(self.experts)).permute(2, 1, 0)
        for index in chosen.sum(dim=(1, 2)).nonzero():
            slot, token = torch.where(chosen[index].squeeze(0))
            result = self.experts[index](x[token]) * weights[token, slot, None]
            output.index_add_(0, token, result)
        return output


def contenders(case: Case) -> list[Contender]:
    """All forms on the same weights and tokens."""
    torch.manual_seed(0)
    block = Block(case)
    x = torch.randn(case.tokens, case.hidden, dtype=case.dtype)
    scores = torch.randn(case.tokens, case.experts).softmax(-1)
    weights, routing = scores.topk(case.k, dim=-1)
    weights = weights.to(case.dtype)
    w1, w2, w3 = (
        [getattr(expert, name).weight.detach().t().contiguous() for expert in block.experts]
        for name in ("gate", "up", "down")
    )
    w12 = [torch.cat(pair, dim=1) for pair in zip(w1, w2, strict=True)]
    # The modules' own storage, [out, in]; the others above are copies stored as [in, out].
    linear = [[getattr(expert, name).weight.detach() for expert in block.experts] for name in ("gate", "up", "down")]
    views = tuple([weight.t() for weight in part] for part in linear)
    common = (x, routing, weights)
    last = case.experts - 1
    return [
        Contender("modules", lambda: block(*common)),
        Contender("static", lambda: dense_mixture_of_experts(*common, w1, w2, w3, "gelu")),
        Contender("loop", lambda: reference(*common, w1, w2, w3, "gelu")),
        Contender("ours", lambda: mixture_of_experts(*common, w1, w2, w3, False, "gelu", 0, last)),
        Contender("ours w12", lambda: mixture_of_experts(*common, w12, w3, False, "gelu", 0, last)),
        Contender("static linear", lambda: dense_mixture_of_experts(*common, views[0], views[1], views[2], "gelu")),
        Contender("ours permuted", lambda: mixture_of_experts(*common, *linear, True, "gelu", 0, last)),
    ]


def row(case: Case, rounds: int) -> list[str]:
    """One line of the table; the error is against the modules, relative to their largest output."""
    running = contenders(case)
    repeat = max(1, 2**22 // (case.tokens * case.hidden * case.ffn))
    result = race(running, rounds, min(repeat, 20))
    outputs = {each.name: output for each in running if isinstance(output := each.run(), Tensor)}
    scale = outputs["modules"].abs().max()
    error = max(((outputs[name] - outputs["modules"]).abs().max() / scale).item() for name in outputs)
    ratios = [result.ratio(*pair) for pair in PAIRS]
    return [
        case.name,
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
        rows = [row(case, options.rounds) for case in CASES if not options.cases or case.name in options.cases]
    print(table(header, rows))


if __name__ == "__main__":
    main()
