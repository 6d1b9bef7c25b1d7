"""Runs a script or a module like `python SCRIPT` and `python -m MODULE`."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from types import FrameType, ModuleType, TracebackType

_BETWEEN = (
    f"{os.sep}perftool{os.sep}fused{os.sep}__main__.py",
    f"{os.sep}perftool{os.sep}fused{os.sep}porting{os.sep}",
    f"{os.sep}torch{os.sep}overrides.py",
    "<frozen runpy>",
    f"{os.sep}runpy.py",
)


def run_module(name: str, arguments: list[str]) -> None:
    """Run the module `name` with the caller's folder first on the path, as `python -m` does."""
    sys.argv = [name, *arguments]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def run_script(path: str, arguments: list[str]) -> None:
    """Run the file at `path` as the module `__main__`. Raise OSError if it cannot be read, and SyntaxError as Python
    does."""
    whole = os.path.abspath(path)
    with open(whole, "rb") as file:
        code = compile(file.read(), whole, "exec")
    sys.argv = [path, *arguments]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(whole)
    main = ModuleType("__main__")
    main.__file__, main.__loader__ = whole, SourceFileLoader("__main__", whole)
    main.__dict__.update(__builtins__=__builtins__, __cached__=None)
    # The script's module stays in sys.modules, because its classes may be pickled later.
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def hide_internal_frames() -> None:
    """Leave our own frames out of the traceback that Python prints."""
    show = sys.excepthook

    def show_without(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        error = error.with_traceback(_shortened(error, trace))
        show(kind, error, error.__traceback__)

    sys.excepthook = show_without


def _shortened(error: BaseException, trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback without our frames; errors raised by our own code keep all frames."""
    shown = without(trace, _is_internal)
    return trace if shown is None and not isinstance(error, (SyntaxError, ImportError)) else shown


def without(trace: TracebackType | None, hidden: Callable[[FrameType], bool]) -> TracebackType | None:
    """Return a traceback without the `hidden` frames, or None if no frame remains."""
    shown: TracebackType | None = None
    for frame, line in reversed(list(traceback.walk_tb(trace))):
        if not hidden(frame):
            shown = TracebackType(shown, frame, frame.f_lasti, line)
    return shown


def _is_internal(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return any(part in file for part in _BETWEEN)
