"""Counts the padding in the sequences that embeddings look up, and in sequences of features that a model gets. A trace
records shapes, but no values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from perftool.integrations.record.plain_tensors import is_plain
from perftool.model.modules import INSIDE
from perftool.model.recorded_on import LONGEST_PATH

# Larger inputs are not examined, because that takes time.
_MOST_TOKENS, _MOST_NUMBERS = 2**20, 2**24
_MOST_TABLES = 50
# Segment numbers, types and flags also repeat at the ends of sequences, but have fewer distinct values than tokens.
_FEWEST_TOKENS = 4
# If the token at the ends also occurs elsewhere in the sequences, it may be data rather than padding.
_MOST_INSIDE = 0.05
_KINDS = (torch.int32, torch.int64)
# Shorter sequences may be images, whose last rows are often empty.
_FEWEST_FRAMES = 50
# The dimensions of the sequences, the frames and the features in a model's input.
_LAYOUTS = ((0, 1, 2), (0, 2, 1), (1, 0, 2))


@dataclass(frozen=True)
class Padding:
    """The padding in a batch with ``tokens`` tokens. ``cut`` of them lie beyond the end of the longest sequence, and
    ``empty`` of them in sequences that contain only padding."""

    tokens: int
    padded: int
    cut: int
    empty: int = 0


@dataclass(frozen=True)
class PaddedFrames:
    """The padding in a batch of sequences of frames, which follow each other along ``axis``; each has ``features``."""

    axis: int
    features: int
    padding: Padding


class PaddedInputs:
    """Adds up the padding in the inputs of embeddings and of models (modules that are not inside another module)."""

    def __init__(self) -> None:
        self._added: dict[tuple[tuple[str, Any], ...], list[int]] = {}

    def add(self, path: str, module: torch.nn.Module, inputs: Sequence[Any]) -> None:
        """Add the inputs of a call to ``module``. ``path`` names the classes of the modules, the outermost first."""
        if len(path) > LONGEST_PATH:
            return
        if type(module) is torch.nn.Embedding and len(inputs) == 1 and is_plain(module.weight):
            height, width = module.weight.shape
            self._add(padding(inputs[0], module.padding_idx), path=path, vocabulary=height, width=width)
        elif INSIDE not in path:
            for one in inputs:
                if found := padded_frames(one):
                    self._add(found.padding, path=path, axis=found.axis, width=found.features)

    def _add(self, found: Padding | None, **key: Any) -> None:
        place = tuple(key.items())
        if found is not None and (place in self._added or len(self._added) < _MOST_TABLES):
            sums = self._added.get(place, [0, 0, 0, 0])
            new = found.tokens, found.padded, found.cut, found.empty
            self._added[place] = [before + more for before, more in zip(sums, new, strict=True)]

    def found(self) -> list[dict[str, Any]]:
        """What was added, once per path and shape of the table, or per path, axis and number of features."""
        names = ("tokens", "padded", "cut", "empty")
        return [{**dict(key), **dict(zip(names, sums, strict=True))} for key, sums in sorted(self._added.items())]


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
            yield _padding_after(ends != value), value


def _padding_after(is_data: torch.Tensor) -> Padding:
    """The padding after the last place with data in each row. Each row is a sequence."""
    lengths = is_data.flip(1).cummax(1).values.sum(1)
    count, length = is_data.shape
    empty = int((lengths == 0).sum()) * length
    return Padding(count * length, count * length - int(lengths.sum()), (length - int(lengths.max())) * count, empty)


def padded_frames(frames: Any) -> PaddedFrames | None:
    """The padding in a batch of sequences of features: frames of zeros at the end. None if there is none, or if
    ``frames`` may be something else."""
    if not is_plain(frames) or not frames.is_floating_point() or frames.dim() != 3 or frames.numel() > _MOST_NUMBERS:
        return None
    found = [one for layout in _LAYOUTS if (one := _frames_of(frames, *layout))]
    return max(found, key=lambda one: one.padding.padded, default=None)


def _frames_of(frames: torch.Tensor, batch: int, axis: int, features: int) -> PaddedFrames | None:
    rows = frames.permute(batch, axis, features)
    count, length, width = rows.shape
    if count < 2 or length < _FEWEST_FRAMES:
        return None
    is_data = (rows != 0).any(2)
    found = _padding_after(is_data)
    return PaddedFrames(axis, width, found) if found.padded and bool(is_data.any(1).all()) else None
