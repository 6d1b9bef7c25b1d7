"""Mixtures of experts as one op: each token goes through two matmuls in each of its experts. An expert's weights are
read if it gets any token. Records do not show how many experts do; if each of T tokens chooses k of E experts at
random, the expected number is E (1 - (1 - k/E)^T)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from perftool.op_costs.call import Call, NoModelError, Tensor
from perftool.op_costs.cost import Cost, moved


@dataclass(frozen=True)
class Mixture:
    """Sizes of a call: ``up`` is the number of columns of the first matmul, ``inner`` the summed dimension of the
    second."""

    x: Tensor
    choices: int
    experts: int
    hidden: int
    up: int
    inner: int
    expert_bytes: float
    dtype: str | None

    @property
    def tokens(self) -> int:
        """Rows of the input."""
        return self.x.dims[0]

    @property
    def rows(self) -> int:
        """Mean number of rows per expert that has any rows, at least one."""
        return max(round(self.tokens * self.choices / max(self._reached(), 1)), 1)

    def cost(self) -> Cost:
        """Operations of both matmuls; bytes of input, result and the weights of experts with tokens."""
        flops = 2 * self.tokens * self.choices * self.hidden * (self.up + self.inner)
        size = moved(self.x, self.x) + round(self._reached() * self.expert_bytes)
        return Cost(flops, size, "matrix", self.dtype)

    def _reached(self) -> float:
        return float(self.experts * (1 - (1 - self.choices / self.experts) ** self.tokens))


def _given(call: Call) -> Mixture:
    """The mixture of a call with the arguments: hidden states, both weights [expert, columns, summed dimension], and
    the weights of the chosen experts [token, choice]."""
    x, first, second, chosen = (call.tensor(at) for at in range(4))
    if not len(x.dims) == len(chosen.dims) == 2 or not len(first.dims) == len(second.dims) == 3 or 0 in first.dims:
        raise NoModelError("not a mixture")
    hidden, experts = x.dims[1], first.dims[0]
    # 4-bit weights are packed along the summed dimension.
    packed = max(hidden // first.dims[2], 1)
    eight = first.rate_name in ("fp8", "int8")
    return _checked(
        Mixture(
            x, chosen.dims[1], experts, hidden, first.dims[1], second.dims[2] * packed,
            moved(first, second) / experts, first.rate_name if eight else x.rate_name,
        )
    )  # fmt: skip


# The names of kernels that TensorRT-LLM generates: the types of result, weights and tokens, and the size of a tile.
_KERNEL = re.compile(
    r"^bmm_\w+?_(?P<weights>(?:Mx)?E\dm\d|Bfloat16|Fp16)(?P<tokens>(?:Mx)?E\dm\d|Bfloat16|Fp16)?_Fp32_t(\d+)x(\d+)x\d+"
)
_BITS = {"E2m1": 4, "E4m3": 8, "E5m2": 8, "Bfloat16": 16, "Fp16": 16}
_RATES = {"E4m3": "fp8", "E5m2": "fp8", "Bfloat16": "bf16", "Fp16": "fp16", "E2m1": "fp4"}
# OCP formats with the prefix Mx have an 8-bit scale for every 32 elements.
_SCALE_BITS = 8 / 32


def _by_grids(call: Call) -> Mixture:
    """vLLM's ``moe_forward``: its arguments are tokens and router logits; the other sizes come from names and grids of
    its kernels.

    The first dimension of a grid counts the tiles of the weights. The second is the largest possible number of tiles of
    tokens: one for each expert, and one for each full tile of the remaining tokens (FlashInfer,
    ``getMaxNumCtasInBatchDim``).
    """
    x, logits = call.tensor(0), call.tensor(1)
    products = sorted(
        (("Glu" not in name, found, grid) for name, grid in call.grids if (found := _KERNEL.match(name))),
        key=lambda product: product[0],
    )
    if len(products) != 2 or products[0][0] or not products[1][0] or len(x.dims) != 2 or len(logits.dims) != 2:
        raise NoModelError("the weights are not recorded")
    (_, first, first_grid), (_, _, second_grid) = products
    tall, wide = int(first[3]), int(first[4])
    experts, up = logits.dims[1], first_grid[0] * tall
    weights, tokens = first["weights"], first["tokens"] or first["weights"]
    kind, of_tokens = weights.removeprefix("Mx"), tokens.removeprefix("Mx")
    bits = _BITS[kind] + (_SCALE_BITS if weights.startswith("Mx") else 0)
    if second_grid[0] * tall != x.dims[1]:
        raise NoModelError("grids of another layer")
    size = x.dims[1] * (up + up // 2) * bits / 8
    choices = _choices(x.dims[0], experts, wide, first_grid[1])
    # If the operands have two types, the matmul runs at the rate of the wider one.
    wider = max(kind, of_tokens, key=_BITS.__getitem__)
    return _checked(Mixture(x, choices, experts, x.dims[1], up, up // 2, size, _RATES[wider]))


def _choices(tokens: int, experts: int, tile: int, blocks: int) -> int:
    """The number of experts per token with which the tokens may fill ``blocks`` tiles. Raises NoModelError unless it is
    unique."""
    found = []
    for choices in range(1, min(experts, 64) + 1):
        filled = min(experts, tokens * choices)
        if filled + (tokens * choices - filled) // tile == blocks:
            found.append(choices)
    if len(found) != 1:
        raise NoModelError("the number of experts per token is not recorded")
    return found[0]


def _checked(mixture: Mixture) -> Mixture:
    if not 0 < mixture.choices <= mixture.experts or not prod(mixture.x.dims):
        raise NoModelError("not a mixture")
    return mixture


MIXTURES: dict[str, Callable[[Call], Mixture]] = {
    "vllm::inplace_fused_experts": _given, "vllm::outplace_fused_experts": _given,
    "vllm::rocm_aiter_fused_moe": _given, "aiter::fused_moe_": _given,
    "sglang::inplace_fused_experts": _given, "sglang::outplace_fused_experts": _given,
    "vllm::moe_forward": _by_grids,
}  # fmt: skip
