"""Ops over lists of tensors: concatenations, ``_foreach`` ops and fused optimizers.

Operations of a fused optimizer per parameter, according to its update rule:

* Adam (Kingma and Ba 2015, algorithm 1): 3 for the first moment, 4 for the second, 3 for root, quotient and eps, 3 for
  the step; AdamW 2 more for the decay. The bias corrections are numbers, not tensors, so they do not count.
* SGD with momentum: 2 for the decay, 2 for the momentum, 2 for the step
* Adagrad (Duchi et al. 2011): 2 for the sum of squares, 2 for root and eps, 3 for the step, 2 for the decay
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from perftool.op_costs.call import Call, NoModelError, Tensor
from perftool.op_costs.cost import Cost, total


def _cat(call: Call) -> Cost:
    parts = call.many(0)
    return Cost(0, 2 * total(parts), "vector", parts[0].rate_name)


@dataclass(frozen=True)
class _Foreach:
    """An op that reads ``lists`` lists of tensors (the first one only if ``reads_first`` is set). The results are as
    large as the first list."""

    lists: int = 1
    per_element: int = 1
    reads_first: bool = True
    writes: bool = True

    def __call__(self, call: Call) -> Cost:
        read = [call.many(at) for at in range(self.lists) if call.has_list(at)]
        if not read:
            raise NoModelError("no lists")
        size = sum(map(total, read if self.reads_first else read[1:])) + self.writes * total(read[0])
        return Cost(self.per_element * _count(read[0]), size, "vector", read[0][0].rate_name)


def _optimizer(call: Call, written: tuple[int, ...], read_only: tuple[int, ...], per_element: int) -> Cost:
    """Return the cost of an optimizer that updates the lists at positions ``written`` and reads those at ``read_only``.

    The first list contains the parameters. Lists that the optimizer does not use (momentum, maxima) are empty.
    """
    parameters = call.many(0)
    both = [call.many(at) for at in written if at < len(call.dims) and call.dims[at]]
    once = [call.many(at) for at in read_only if at < len(call.dims) and call.dims[at]]
    size = 2 * sum(map(total, both)) + sum(map(total, once))
    return Cost(per_element * _count(parameters), size, "vector", parameters[0].rate_name)


def _count(tensors: list[Tensor]) -> int:
    return sum(one.count for one in tensors)


_BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "clamp_min", "clamp_max", "lerp", "pow")
_UNARY = ("neg", "sqrt", "rsqrt", "reciprocal", "abs", "exp", "log", "sign")
JOINS: dict[str, Callable[[Call], Cost]] = {"aten::cat": _cat, "aten::_cat": _cat, "aten::stack": _cat}
LISTS: dict[str, Callable[[Call], Cost]] = {
    **{f"aten::_foreach_{name}{end}": _Foreach(2) for name in _BINARY for end in ("", "_")},
    **{f"aten::_foreach_{name}{end}": _Foreach(1) for name in _UNARY for end in ("", "_")},
    **{f"aten::_foreach_{name}{end}": _Foreach(3, 3) for name in ("addcmul", "addcdiv") for end in ("", "_")},
    "aten::_foreach_copy_": _Foreach(2, 0, reads_first=False),
    "aten::_foreach_zero_": _Foreach(1, 0, reads_first=False),
    "aten::_foreach_norm": _Foreach(1, 2, writes=False),
    "aten::_amp_foreach_non_finite_check_and_unscale_": _Foreach(1, 2),
}  # fmt: skip
OPTIMIZERS: dict[str, Callable[[Call], Cost]] = {
    "aten::_fused_adam_": partial(_optimizer, written=(0, 2, 3, 4), read_only=(1,), per_element=13),
    "aten::_fused_adamw_": partial(_optimizer, written=(0, 2, 3, 4), read_only=(1,), per_element=15),
    "aten::_fused_sgd_": partial(_optimizer, written=(0, 2), read_only=(1,), per_element=6),
    "aten::_fused_adagrad_": partial(_optimizer, written=(0, 2), read_only=(1,), per_element=9),
}  # fmt: skip
