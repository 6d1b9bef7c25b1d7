"""Reads the sequence lengths of a batch from vLLM's annotation around a step.

The new form is ``execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)``. If a sequence has
q queries and k keys, the four numbers are the sums of q, k, q q and q k over the requests that start (context), and
over those that continue (generation). The old form is ``execute_context_1(888_788544)_generation_0(0)``; it has only
the sums of q and q q over the requests that start, so it can be used only if no request continues.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from perftool.op_costs.call import NoModelError

_SUMS = re.compile(r"\(sq(\d+)sk(\d+)sqsq(\d+)sqsk(\d+)\)")
_OLD = re.compile(r"context_\d+\((\d+)_(\d+)\)_generation_0\(0\)")
_LONGEST = 15


@dataclass(frozen=True)
class Lengths:
    """Sums over the sequences in a batch: queries, keys, and query-key pairs under a causal mask."""

    queries: int
    keys: int
    pairs: float


def lengths_of(annotation: str) -> Lengths:
    """Read the sums in ``annotation``. Raise NoModelError if it contains no sums."""
    sums = [[int(number[:_LONGEST]) for number in found] for found in _SUMS.findall(annotation)]
    if sums:
        queries, keys, squares, products = (sum(column) for column in zip(*sums, strict=True))
        return Lengths(queries, keys, products - squares / 2)
    if old := _OLD.search(annotation):
        queries, squares = (int(number[:_LONGEST]) for number in old.groups())
        # The old form omits the keys, because a request that starts has as many keys as queries.
        return Lengths(queries, queries, squares / 2)
    raise NoModelError("no annotation has the lengths")
