"""What is remembered of a parameter group from step to step: which objects belong together, and nothing else.

At every step it is compared with what the user sees, in a few passes over lists: gradients and states are fetched,
objects compared by identity, gradients and parameters asked for their order and size. That costs less than
a microsecond for each parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat
from operator import attrgetter, is_
from typing import Any

from torch import Tensor
from torch.nn import Parameter

from perftool.fused.optimizers import native
from perftool.fused.optimizers.batches import Batch, Group, StateRules, States, batches_of

RUN = 256
"""Tensors that are compared at a time: what one of them needs is then still in the cache for the next question."""

_gradient, _bytes = attrgetter("grad"), attrgetter("nbytes")
_ORDINARY = {Tensor, Parameter}


class GroupBatches:
    """The batches of one parameter group; remembers them while parameters and states stay the same objects."""

    def __init__(self) -> None:
        self._regular: _Regular | None = None

    def again(self, group: Group, states: States, names: Sequence[str], natively: bool) -> Batch | None:
        """The batch of the step before with the gradients of this one, None if anything but their values changed."""
        return None if self._regular is None else self._regular.again(group["params"], states, names, natively)

    def collect(self, group: Group, states: States, rules: StateRules) -> list[Batch]:
        """The batches of this step, as `batches_of` finds them."""
        batches = batches_of(group, states, rules)
        self._regular = _Regular.of(batches, states, tuple(rules.names(group)))
        return batches


class _Regular:
    """A batch of contiguous tensors that is the whole group: the usual case, compared object by object."""

    def __init__(self, batch: Batch, states: States, names: tuple[str, ...]) -> None:
        # Without the gradients, which nobody but their parameters shall keep.
        self._batch, self._names = replace(batch, grads=[]), names
        self._entries = [states[param] for param in batch.params] if names else []
        self._all_entries = list(states.values())
        self._device, self._dtype = batch.params[0].device, batch.params[0].dtype
        self._on_cpu = self._device.type == "cpu"
        starts = range(0, len(batch.params), RUN)
        self._runs = [_Run(batch, self._entries, slice(start, start + RUN)) for start in starts]

    @classmethod
    def of(cls, batches: list[Batch], states: States, names: tuple[str, ...]) -> _Regular | None:
        """None unless there is one batch, of contiguous tensors in memory of their own."""
        if len(batches) != 1 or not batches[0].fits or batches[0].spread:
            return None
        batch = batches[0]
        tensors = [batch.params, *batch.states.values()]
        regular = all(all(map(Tensor.is_contiguous, each)) for each in tensors)
        shaped = all(each.numel() for each in batch.params) and not _has_scales(batch)
        return cls(batch, states, names) if regular and shaped else None

    def again(self, params: list[Tensor], states: States, names: Sequence[str], natively: bool) -> Batch | None:
        """The batch with the gradients of these parameters; None unless all are as remembered, and fit."""
        batch = self._batch
        if len(params) != len(batch.params):
            params = [param for param in params if param.grad is not None]
        if len(params) != len(batch.params) or names != self._names or not self._has_entries(states):
            return None
        found = self._natively(params) if natively else self._gradients(params)
        if found is None:
            return None
        # Faster than `replace`, which would look at every field.
        return Batch(
            params=batch.params,
            grads=found,
            states=batch.states,
            owners=batch.params,
            sizes=batch.sizes,
            ordinary=True,
            fits=True,
            contiguous=True,
            kept=batch.kept,
        )

    def _has_entries(self, states: States) -> bool:
        return len(states) == len(self._all_entries) and all(map(is_, states.values(), self._all_entries))

    def _natively(self, params: list[Tensor]) -> list[Tensor] | None:
        same = all(map(is_, params, self._batch.params))
        return native.gradients(params, self._batch.sizes, self._entries, self._batch.states) if same else None

    def _gradients(self, params: list[Tensor]) -> list[Tensor] | None:
        found: list[Tensor] = []
        for run in self._runs:
            present = params[run.places]
            given = run.gradients(present)
            if given is None:
                return None
            found += given
        like = found[0]
        moved = not like.is_cpu if self._on_cpu else like.device != self._device
        return found if like.dtype is self._dtype is params[0].dtype and not moved else None


class _Run:
    """Some parameters of a batch with their states: what is compared while it is in the cache."""

    def __init__(self, batch: Batch, entries: list[dict[str, Any]], places: slice) -> None:
        self.places = places
        self._params = batch.params[places]
        self._bytes = list(map(_bytes, self._params))
        self._entries = entries[places]
        self._states = [(name, tensors[places]) for name, tensors in batch.states.items()]

    def gradients(self, present: list[Tensor]) -> list[Tensor] | None:
        """The gradients of these parameters; None unless they and their states are the same objects, and all fit.

        Equal numbers of bytes keep a kernel within its memory. Two dtypes of one width would pass: a kernel refuses
        that, and says so.
        """
        given = list(map(_gradient, present))
        if not all(map(is_, present, self._params)) or not set(map(type, given)) <= _ORDINARY:
            return None
        try:
            contiguous = all(map(Tensor.is_contiguous, given)) and all(map(Tensor.is_contiguous, present))
        except RuntimeError:  # a sparse gradient has no answer to that
            return None
        fits = contiguous and list(map(_bytes, given)) == self._bytes == list(map(_bytes, present))
        return given if fits and self._has_states() else None

    def _has_states(self) -> bool:
        entries = self._entries
        return all(all(map(is_, map(dict.get, entries, repeat(name)), tensors)) for name, tensors in self._states)


def _has_scales(batch: Batch) -> bool:
    return any(each[0].shape != batch.params[0].shape for each in batch.states.values())
