"""Pickles that hold plain values only: a pickle can run any code, so what could is refused before it is loaded."""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any

from perftool.errors import InputError

# Containers, texts, numbers, booleans and None, as any protocol writes them, and the memo that shares these.
_PLAIN = {
    "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP", "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT",
    "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE",
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "EMPTY_LIST", "APPEND", "APPENDS", "LIST", "EMPTY_TUPLE", "TUPLE",
    "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "GET", "BINGET", "LONG_BINGET", "PUT",
    "BINPUT", "LONG_BINPUT", "MEMOIZE",
}  # fmt: skip
_PUTS = {"PUT", "BINPUT", "LONG_BINPUT"}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def load_plain(data: bytes) -> Any:
    """The value of a pickle of plain values. Raises InputError for one that is damaged, or holds anything else."""
    try:
        for count, (code, argument, _) in enumerate(pickletools.genops(data)):
            if code.name not in _PLAIN:
                raise InputError(f"is a pickle with more than plain values ({code.name}), which is never loaded")
            # The memo is as long as its highest number says: memory would be taken for nothing.
            if code.name in _PUTS and int(argument or 0) > count:
                raise InputError("is a damaged pickle (its memo has gaps)")
        return _PlainUnpickler(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, ValueError, EOFError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"is a damaged pickle ({error})") from None
