"""Counts the padding in the sequences that embeddings look up. A trace records shapes, but no values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from perftool.integrations.record.plain_tensors import is_plain
from perftool.model.recorded_on import LONGEST_PATH

# Larger inputs are not examined, because that takes time.
_MOST_TOKENS = 2**20
_MOST_TABLES = 50
# Numbers of segments, of types and of flags also repeat at the ends of sequences, but have fewer values than tokens.
_FEWEST_TOKENS = 4
# A token that also occurs within the sequences may be the last one of many.
_MOST_INSIDE = 0.05
_KINDS = (torch.int32, torch.int64)


@dataclass(frozen=True)
class Padding:
    """The padding in a batch with ``tokens`` tokens. ``cut`` of them lie behind the longest sequence."""

    tokens: int
    padded: int
    cut: int


class PaddedInputs:
    """Adds up the padding in the inputs of each class of modules around embeddings."""

    def __init__(self) -> None:
        self._added: dict[tuple[str, int, int], list[int]] = {}

    def add(self, path: str, module: torch.nn.Module, args: Any) -> None:
        """Add the input of a call to ``module``. ``path`` has the classes of the modules from the outermost to it."""
        if type(module) is not torch.nn.Embedding or len(args) != 1 or len(path) > LONGEST_PATH:
            return
        found = padding(args[0], module.padding_idx) if is_plain(module.weight) else None
        if found is not None:
            key = path, *module.weight.shape
            if key in self._added or len(self._added) < _MOST_TABLES:
                sums = self._added.get(key, [0, 0, 0])
                new = found.tokens, found.padded, found.cut
                self._added[key] = [before + more for before, more in zip(sums, new, strict=True)]

    def found(self) -> list[dict[str, Any]]:
        """What was added, once per path and shape of the table."""
        names = ("path", "vocabulary", "width", "tokens", "padded", "cut")
        return [dict(zip(names, (*key, *sums), strict=True)) for key, sums in sorted(self._added.items())]


def padding(tokens: Any, token: int | None) -> Padding | None:
    """The padding in a batch of sequences: equal tokens at one end, ``token`` if this is not None. None if there is
    none, or if the values may be something else."""
    if not is_plain(tokens) or tokens.dtype not in _KINDS or tokens.dim() != 2:
        return None
    if min(tokens.shape) < 2 or tokens.numel() > _MOST_TOKENS:
        return None
    found, value = max(_runs(tokens, token), key=lambda one: (one[0].padded, one[0].cut))
    others = tokens[tokens != value]
    kept = found.tokens - found.padded
    known = kept - others.numel() <= _MOST_INSIDE * kept and others.unique().numel() >= _FEWEST_TOKENS
    return found if found.padded and known else None


def _runs(tokens: torch.Tensor, token: int | None) -> Iterator[tuple[Padding, int]]:
    """The padding at each end of the rows, and of the columns, with the token that it consists of."""
    for rows in (tokens, tokens.T):
        for ends in (rows, rows.flip(1)):
            value = int(ends[:, -1].mode().values) if token is None else token
            # Some programs end each padded row with the same token, such as a separator.
            if token is not None and int(ends[0, -1]) != value and bool((ends[:, -1] == ends[0, -1]).all()):
                ends = ends[:, :-1]
            # A sequence ends with the last token that is not padding.
            lengths = (ends != value).flip(1).cummax(1).values.sum(1)
            count, length = ends.shape
            padded, cut = count * length - int(lengths.sum()), (length - int(lengths.max())) * count
            yield Padding(count * length, padded, cut), value
