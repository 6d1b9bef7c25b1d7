"""Counts the targets that a loss ignores. A trace records shapes, but no values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from perftool.integrations.record.plain_tensors import is_plain
from perftool.model.recorded_on import LONGEST_PATH

_LOSSES = (torch.nn.CrossEntropyLoss, torch.nn.NLLLoss)
# More targets are not examined, because that takes time.
_MOST_TARGETS = 2**20
_MOST_LOSSES = 50


class IgnoredTargets:
    """Adds up the targets that have the loss's ``ignore_index``, once per path of a loss and number of classes."""

    def __init__(self) -> None:
        self._added: dict[tuple[str, int], list[int]] = {}

    def add(self, path: str, module: torch.nn.Module, inputs: Sequence[Any]) -> None:
        """Add the inputs of a call to ``module``. ``path`` names the classes of the modules, the outermost first."""
        if (
            type(module) not in _LOSSES
            or len(inputs) != 2
            or not all(map(is_plain, inputs))
            or len(path) > LONGEST_PATH
        ):
            return
        scores, targets = inputs
        # The classes are the second dimension. A convolution cannot leave out some pixels, so images do not count.
        if (
            scores.dim() not in (2, 3)
            or targets.shape != scores.shape[:1] + scores.shape[2:]
            or targets.dtype is not torch.int64
            or not 0 < targets.numel() <= _MOST_TARGETS
        ):
            return
        place = path, int(scores.shape[1])
        if place in self._added or len(self._added) < _MOST_LOSSES:
            sums = self._added.setdefault(place, [0, 0])
            sums[0] += targets.numel()
            sums[1] += int((targets == module.ignore_index).sum())

    def found(self) -> list[dict[str, Any]]:
        """The losses that ignored some of their targets."""
        return [
            {"path": path, "classes": classes, "targets": targets, "ignored": ignored}
            for (path, classes), (targets, ignored) in sorted(self._added.items())
            if ignored
        ]
