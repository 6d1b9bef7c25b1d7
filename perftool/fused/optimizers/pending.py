"""A clip of gradients that the next step of an optimizer is to carry out."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from operator import attrgetter

from torch import Tensor

_version, _gradient = attrgetter("_version"), attrgetter("grad")


class PendingClip:
    """A divisor, and the gradients that it belongs to: these objects, with the values they had."""

    def __init__(self, divisor: Tensor, params: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        """`divisor` is 0-dim; `grads` are the gradients of `params`, in order."""
        self.divisor = divisor
        self._params = list(params)
        # An id alone may belong to another tensor by now.
        self._grads = list(map(weakref.ref, grads))
        self._versions = list(map(_version, grads))

    def holds(self) -> bool:
        """Whether the parameters still have these gradients, and nobody has written to them."""
        present = list(map(_gradient, self._params))
        same = all(grad is not None and kept() is grad for kept, grad in zip(self._grads, present, strict=True))
        return same and list(map(_version, present)) == self._versions

    def carry_out(self) -> None:
        """Divide the gradients now, if they are still the same."""
        if self.holds():
            for grad in map(_gradient, self._params):
                grad.div_(self.divisor)
