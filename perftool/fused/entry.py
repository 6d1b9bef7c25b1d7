"""What an optimizer's `state` holds for a parameter, while its tensors are views of flat buffers.

Comparing thousands of such dictionaries with what was laid out, before every step, takes a tenth of the step.
So the views enter them only when somebody asks: till then nobody can replace or move one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor


class Withheld:
    """State tensors by name, one per entry, that no entry has handed out while `intact` is True."""

    def __init__(self, states: Mapping[str, list[Tensor]]) -> None:
        self.states = states
        self.intact = True

    def at(self, index: int) -> dict[str, Tensor]:
        """The tensors of one entry."""
        return {name: tensors[index] for name, tensors in self.states.items()}


class Entry(dict[str, Any]):
    """The state of one parameter: a dictionary whose withheld tensors enter at the first use of any kind."""

    __slots__ = ("_index", "_withheld")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._withheld: Withheld | None = None
        self._index = 0
        super().__init__(*args, **kwargs)

    def withhold(self, withheld: Withheld, index: int) -> None:
        """Give up the tensors of these names until they are asked for."""
        for name in withheld.states:
            self.pop(name, None)
        self._withheld, self._index = withheld, index

    def take_back(self, withheld: Withheld) -> None:
        """Hold the tensors again, if these are still withheld; nobody has seen them."""
        if self._withheld is withheld:
            self._withheld = None
            self.update(withheld.at(self._index))

    def hand_out(self) -> None:
        """Hold the tensors, for somebody who may keep or replace them."""
        withheld = self._withheld
        if withheld is not None:
            withheld.intact = False
            self.take_back(withheld)

    def plain(self) -> dict[str, Any]:
        """A plain dictionary; tensors that are withheld are in it as aliases of the same memory."""
        withheld = self._withheld
        if withheld is None:
            return {**self}
        aliases = {name: tensor.detach() for name, tensor in withheld.at(self._index).items()}
        return {**dict(dict.items(self)), **aliases}

    def copy(self) -> dict[str, Any]:
        """A plain dictionary of the same objects."""
        self.hand_out()
        return {**self}

    __copy__ = copy

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (self.plain(),)


def _handing_out(name: str) -> Callable[..., Any]:
    method = getattr(dict, name)

    def use(self: Entry, *args: Any, **kwargs: Any) -> Any:
        self.hand_out()
        return method(self, *args, **kwargs)

    use.__name__, use.__doc__ = name, method.__doc__
    return use


# With an iterator of its own even `{**entry}` and `dict(entry)` ask for the items one by one.
for _name in (
    *("__contains__", "__delitem__", "__eq__", "__getitem__", "__ior__", "__iter__", "__len__", "__ne__", "__or__"),
    *("__repr__", "__reversed__", "__ror__", "__setitem__"),
    *("clear", "get", "items", "keys", "pop", "popitem", "setdefault", "update", "values"),
):
    setattr(Entry, _name, _handing_out(_name))
