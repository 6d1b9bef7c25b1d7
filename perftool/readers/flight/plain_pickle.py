"""Loads pickles that contain only plain values.

Unpickling can call any function, and a few hundred bytes can build huge values. So this module does not unpickle: it
interprets only the operations that create plain values, and limits the size of values by the length of the data.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perftool.errors import InputError
from perftool.model.valid_text import valid_text

# Dumps of the flight recorder nest six levels deep.
_DEEPEST = 64
# The limit on the total number of values: this many per byte of data, plus a fixed number. A shared value counts once
# per use.
_MOST_PER_BYTE, _MOST_FREE = 16, 100_000
# A pickle may contain one container per this many bytes. An empty list takes one byte in the pickle, but 56 in memory.
_BYTES_A_CONTAINER = 4
# The same limit applies to memoised values. The stack may contain one value per _BYTES_A_VALUE, plus a fixed number,
# because writers complete one list or dict of a dump before they begin the next.
_BYTES_A_VALUE, _FREE_VALUES = 16, 100_000


class _Mark:
    """Marks the start of the items of a list, tuple or dict on the stack."""


@dataclass(slots=True)
class _Made:
    """A value that consists of ``size`` values, nested ``depth`` levels deep. Once it is shared or part of another
    value, it is ``frozen``: it may not change."""

    value: Any
    size: int = 1
    depth: int = 0
    frozen: bool = False


class _Refused(Exception):  # noqa: N818 - becomes one of our errors later
    """The pickle contains something that no flight-recorder dump contains."""


_MARK = _Mark()
_VALUES = {
    "NONE": None, "NEWTRUE": True, "NEWFALSE": False,
}  # fmt: skip
_OF_ARGUMENT = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
}  # fmt: skip
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
_MARKED = {"LIST", "TUPLE", "DICT"}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_FILLING = {"APPEND": 1, "SETITEM": 2, "APPENDS": 0, "SETITEMS": 0}
_PUTS = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
_GETS = {"GET", "BINGET", "LONG_BINGET"}
_NOTHING = {"PROTO", "FRAME", "STOP"}


def load_plain(data: bytes) -> Any:
    """Load a pickle of plain values. Raise InputError if it is damaged or contains anything else."""
    machine = _Machine(len(data))
    try:
        at = 0
        for code, argument, place in pickletools.genops(data):
            machine.do(code.name, argument)
            at = place or 0
        if at + 1 < len(data):
            raise ValueError("trailing bytes after the end")
        return machine.result()
    except _Refused as refused:
        raise InputError(f"refused: the pickle {refused}") from None
    except (ValueError, EOFError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"damaged pickle ({str(error)[:200]})") from None


class _Machine:
    """The stack and the memo of a pickle of ``length`` bytes."""

    def __init__(self, length: int) -> None:
        self._stack: list[_Made | _Mark] = []
        self._memo: dict[int, _Made] = {}
        self._most = _MOST_PER_BYTE * length + _MOST_FREE
        self._containers = self._most_memoised = length // _BYTES_A_CONTAINER + 1000
        self._most_held = length // _BYTES_A_VALUE + _FREE_VALUES

    def do(self, name: str, argument: Any) -> None:
        """Execute one operation. Raise _Refused if no flight recorder uses it."""
        if name in _OF_ARGUMENT:
            self._stack.append(_Made(valid_text(argument) if isinstance(argument, str) else argument))
        elif name in _GETS:
            self._get(int(argument))
        elif name in _PUTS:
            self._memo[len(self._memo) if argument is None else int(argument)] = self._top()
        elif name in _VALUES:
            self._stack.append(_Made(_VALUES[name]))
        elif name == "MARK":
            self._stack.append(_MARK)
        elif name in _EMPTY:
            self._make(_EMPTY[name](), [])
        elif name in _TUPLES:
            self._make((), self._pop(_TUPLES[name]))
        elif name in _MARKED:
            self._make({"LIST": list, "TUPLE": tuple, "DICT": dict}[name](), self._pop_marked())
        elif name in _FILLING:
            items = self._pop(_FILLING[name]) if _FILLING[name] else self._pop_marked()
            self._fill(self._top(), items, list if name.startswith("APPEND") else dict)
        elif name not in _NOTHING:
            raise _Refused(f"contains more than plain values ({name})")
        if len(self._memo) > self._most_memoised or len(self._stack) > self._most_held:
            raise _Refused("holds more values than its size allows")

    def result(self) -> Any:
        """Return the value left on the stack at the end."""
        if len(self._stack) != 1:
            raise ValueError("it does not contain exactly one value")
        return self._top().value

    def _top(self) -> _Made:
        top = self._stack[-1]
        if isinstance(top, _Mark):
            raise ValueError("a mark in place of a value")
        return top

    def _pop(self, count: int) -> list[_Made]:
        items = self._stack[-count:]
        if len(items) < count or any(isinstance(item, _Mark) for item in items):
            raise ValueError("values are missing")
        del self._stack[-count:]
        return items  # type: ignore[return-value]

    def _pop_marked(self) -> list[_Made]:
        items: list[_Made] = []
        while not isinstance(item := self._stack.pop(), _Mark):
            items.append(item)
        return items[::-1]

    def _get(self, number: int) -> None:
        """Share a memoised value. From then on it may not change, so that it can never contain itself."""
        shared = self._memo[number]
        shared.frozen = True
        self._stack.append(shared)

    def _make(self, empty: Any, items: list[_Made]) -> None:
        self._containers -= 1
        if self._containers < 0:
            raise _Refused("contains more lists than its size allows")
        made = _Made(empty)
        if isinstance(empty, tuple):
            self._measure(made, items)
            made.value = tuple(item.value for item in items)
        elif items:
            self._fill(made, items, type(empty))
        self._stack.append(made)

    def _fill(self, into: _Made, items: list[_Made], kind: type[list[Any]] | type[dict[Any, Any]]) -> None:
        value = into.value
        if not isinstance(value, kind):
            raise ValueError(f"items are added to something other than a {kind.__name__}")
        if into.frozen:
            raise _Refused("contains self-referential values")
        self._measure(into, items)
        if isinstance(value, list):
            value += [item.value for item in items]
            return
        if len(items) % 2:
            raise ValueError("a key without a value")
        for key, item in zip(items[::2], items[1::2], strict=True):
            # Only strings may be keys, because an attacker could choose numbers whose hashes collide, or tuples that
            # take a long time to hash.
            if not isinstance(key.value, str):
                raise _Refused("contains keys that are not strings")
            value[key.value] = item.value

    def _measure(self, into: _Made, items: list[_Made]) -> None:
        for item in items:
            item.frozen = True
            into.size += item.size
            into.depth = max(into.depth, item.depth + 1)
        if into.size > self._most:
            raise _Refused("repeats its values too often")
        if into.depth > _DEEPEST:
            raise _Refused(f"nests more than {_DEEPEST} levels deep")
