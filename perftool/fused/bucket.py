"""The parameters that one kernel call steps together, and the operands of that call.

A bucket works on cached lists, or, when there are many small tensors, on one flat buffer each for parameters,
states and gradients. Users may view, replace and move what a bucket has cached, so nothing cached is used
before `is_current` has compared it with what the user sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from perftool.fused.entry import Entry, Withheld
from perftool.fused.flat import (
    FlatTensors,
    Layout,
    can_all_move,
    can_replace_gradients,
    find,
    is_dense,
    move,
)
from perftool.fused.unchanged import runs, same_gradients, same_memory, same_places, same_states

SMALL_MEAN = 16 * 1024
"""Mean elements per tensor below which the cost of a step is in the calls, not in the memory traffic."""
MANY = 32
"""Tensors from which flattening is worth moving the parameters."""

_gradient = attrgetter("grad")


@dataclass(frozen=True)
class Work:
    """Operands of one kernel call: lists of equal length, device, dtype and layout.

    `layout` is None for lists of tensors, else every list holds one flat buffer of that layout. `present` are
    the indices, among the parameters of the bucket, of those that take part.
    """

    params: list[Tensor]
    grads: list[Tensor]
    states: dict[str, list[Tensor]]
    layout: Layout | None
    dense: bool
    present: Sequence[int]

    @property
    def device_type(self) -> str:
        """`cpu`, `cuda` or another type of device."""
        return self.params[0].device.type


class Bucket:
    """Parameters of one device and dtype with their state dictionaries, in the order of their group."""

    def __init__(
        self,
        params: list[Tensor],
        entries: list[dict[str, Any]],
        names: Sequence[str],
        *,
        flatten: bool,
        sparse_error: str,
    ) -> None:
        """`entries[i][name]` is a tensor laid out as `params[i]`; `flatten` moves all to flat buffers."""
        self.params = params
        self.entries = entries
        self.names = tuple(names)
        self.sparse_error = sparse_error
        self.dense = all(map(is_dense, params))
        self.flat = self._flatten_params() if flatten else None
        self.anchors = self.flat.views if self.flat else [param.detach() for param in params]
        self.flat_states = self._flatten_states() if self.flat else {}
        self.states = {name: [entry[name] for entry in entries] for name in self.names}
        self._withheld = self._withhold() if self.flat else None
        self.gradients: FlatTensors | None = None
        self._runs = runs(len(params))
        self._exposed = False
        self._in_place: bool | None = None
        self._seen: list[int] = []
        self._adoptions = 3

    def is_current(self) -> bool:
        """Whether parameters and states are still the memory that this bucket has cached.

        The gradients are looked at on the way, for the `work` that follows.
        """
        if self._withheld is not None and not self._withheld.intact:
            self._take_back()
        self._in_place = self._exposed and all(map(self._is_in_place, self._runs))
        return self._in_place or all(map(self._is_unchanged, self._runs))

    def _is_in_place(self, run: slice) -> bool:
        # A gradient that has stayed has the shape of its parameter, so the shape need not be compared.
        return (
            self.flat is not None
            and self.flat.memory.holds(self.params[run], run)
            and self._has_flat_gradients(run)
            and self._has_states(run)
        )

    def _is_unchanged(self, run: slice) -> bool:
        return same_memory(self.params[run], self.anchors[run]) and self._has_states(run)

    def _has_states(self, run: slice) -> bool:
        return self._withheld is not None or (
            same_states(self.entries, self.states, run)
            and all(same_places(flat.views[run], flat.addresses[run]) for flat in self.flat_states.values())
        )

    def release(self) -> None:
        """Let go of the aliases of the parameters, which would keep them from being moved."""
        self._take_back()
        if self.flat is None:
            self.anchors = []

    def _withhold(self) -> Withheld | None:
        """Take the states out of the entries again, unless users have seen the tensors."""
        entries = [entry for entry in self.entries if isinstance(entry, Entry)]
        if len(entries) < len(self.entries) or any(flat.handed_out for flat in self.flat_states.values()):
            return None
        withheld = Withheld(self.states)
        for index, entry in enumerate(entries):
            entry.withhold(withheld, index)
        return withheld

    def _take_back(self) -> None:
        withheld, self._withheld = self._withheld, None
        if withheld is not None:
            for entry in self.entries:
                if isinstance(entry, Entry):
                    entry.take_back(withheld)
            for flat in self.flat_states.values():
                flat.handed_out = flat.handed_out or not withheld.intact

    def work(self, pack: bool = True) -> Work | None:
        """The operands of this step, or None without any gradient.

        Gradients outside the flat buffer are copied into it; with `pack=False` the parameters are then taken
        one by one, so that writing to `Work.grads` writes to `param.grad`.
        """
        flat_gradient = self._flat_gradient(pack)
        if self.flat is None or flat_gradient is None:
            return self._list_work(pack)
        states = {name: [flat.buffer] for name, flat in self.flat_states.items()}
        return Work([self.flat.buffer], [flat_gradient], states, self.flat.layout, True, range(len(self.params)))

    def mark_changed(self) -> None:
        """Tell autograd that the parameters have changed, which a write to their flat buffer does not."""
        if self.flat is not None:
            torch.autograd.graph.increment_version(self.params)

    def zero_gradients(self) -> bool:
        """Zero all gradients at once if they live in the flat buffer; returns whether they do."""
        flat = self.gradients_in_place()
        if flat is not None:
            flat.buffer.zero_()
        return flat is not None

    def _fetch(self) -> list[Tensor | None]:
        return list(map(_gradient, self.params))

    def _list_work(self, pack: bool) -> Work | None:
        grads = self._fetch()
        present = [i for i, grad in enumerate(grads) if grad is not None]
        if not present:
            return None
        params, states = self.anchors, self.states
        if len(present) < len(grads):
            params = [params[i] for i in present]
            states = {name: [tensors[i] for i in present] for name, tensors in states.items()}
        given = self._strided([grad for grad in grads if grad is not None])
        if pack:
            given = list(map(conform, given, params))
        return Work(params, given, states, None, self.dense, present)

    def _strided(self, grads: list[Tensor]) -> list[Tensor]:
        if any(grad.layout is not torch.strided for grad in grads):
            raise RuntimeError(self.sparse_error)
        return grads

    def _flat_gradient(self, pack: bool) -> Tensor | None:
        """The flat gradients, or None when some are missing or, unless `pack`, live elsewhere."""
        if self.flat is None:
            return None
        in_place = self.gradients_in_place()
        if in_place is not None:
            return in_place.buffer
        if self._exposed:
            # Users may still hold the gradients of the last step, which live in this buffer.
            self.gradients, self._exposed = None, False
        grads = self._fetch()
        present = [grad for grad in grads if grad is not None]
        if len(present) < len(grads):
            return None
        identities = list(map(id, present))
        persistent, self._seen = identities == self._seen, identities
        if not (pack or persistent):
            return None
        flat = self._pack(self._strided(present))
        del grads, present  # or the gradients would be known to more than their parameters
        return flat.buffer if (persistent and self._expose(flat)) or pack else None

    def gradients_in_place(self) -> FlatTensors | None:
        """The flat gradients, if the gradients of the parameters are still its views."""
        # What `is_current` has seen holds for the call that follows it, and for no other.
        in_place, self._in_place = self._in_place, None
        if in_place is None:
            in_place = self._exposed and all(map(self._has_flat_gradients, self._runs))
        return self.gradients if in_place else None

    def _has_flat_gradients(self, run: slice) -> bool:
        flat = self.gradients
        return flat is not None and same_gradients(self.params[run], flat.views[run], flat.addresses[run])

    def _pack(self, grads: list[Tensor]) -> FlatTensors:
        assert self.flat is not None
        if self.gradients is None:
            buffer = self.flat.buffer
            self.gradients = FlatTensors.zeros(self.flat.layout, buffer.dtype, buffer.device)
        torch._foreach_copy_(self.gradients.views, grads)
        return self.gradients

    def _expose(self, flat: FlatTensors) -> bool:
        """Make the packed gradients those of the parameters, if nobody else can hold the present ones."""
        if not self._adoptions:
            return False
        self._adoptions -= 1
        if not can_replace_gradients(self.params):
            return False
        for param, view in zip(self.params, flat.views, strict=True):
            param.grad = view
        self._exposed = True
        return True

    def _flatten_params(self) -> FlatTensors | None:
        flat = find(self.params)
        if flat is not None:
            return flat
        if len(set(map(id, self.params))) < len(self.params) or not can_all_move(self.params):
            return None
        flat = FlatTensors.copy_of([param.detach() for param in self.params])
        move(self.params, flat)
        return flat

    def _flatten_states(self) -> dict[str, FlatTensors]:
        return {name: self._flatten_state(name) for name in self.names}

    def _flatten_state(self, name: str) -> FlatTensors:
        tensors = [entry[name] for entry in self.entries]
        flat = find(tensors) or FlatTensors.copy_of(tensors)
        for entry, view in zip(self.entries, flat.views, strict=True):
            entry[name] = view
        return flat


def conform(grad: Tensor, param: Tensor) -> Tensor:
    """`grad`, or a copy in the dtype and memory layout of `param`, which the private kernels rely on."""
    if grad.dtype == param.dtype and grad.stride() == param.stride():
        return grad
    return torch.empty_like(param).copy_(grad)
