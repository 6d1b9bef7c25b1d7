"""Waits until the program imports PyTorch, and then starts the recorder. ``sitecustomize`` imports this module when
Python starts.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

_NAMED = {os.path.abspath(place) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep)}
# The folders of installed modules. Python adds the folder of the program later.
_INSTALLED = [place for place in sys.path if os.path.abspath(place) not in _NAMED]


class _WaitForTorch:
    """Uses the other finders to find PyTorch, and starts the recorder once PyTorch has been imported. Checking whether
    PyTorch is installed does not start it."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        spec = self._found(name, path, target)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    _begin()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _found(self, name: str, path: object, target: object) -> importlib.machinery.ModuleSpec | None:
        for finder in [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]:
            spec: importlib.machinery.ModuleSpec | None = finder.find_spec(name, path, target)  # type: ignore[arg-type]
            if spec is not None:
                return spec
        return None


def _begin() -> None:
    try:
        with _installed_modules_first():
            from perftool.integrations.record.recorder import begin
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an error of the recorder must not end the program
        _leave_note(f"{sys.executable} cannot import the recorder ({type(error).__name__}: {error})")
        return
    begin()


@contextmanager
def _installed_modules_first() -> Iterator[None]:
    """In this block, prefer installed modules to the program's own. Afterwards, forget each imported module that hides
    one of the program's modules, so that the program can still import its own.

    The recorder needs modules that the program may not import, and a file of the program may have the same name.
    """
    known, places = set(sys.modules), sys.path[:]
    sys.path[:] = [*_INSTALLED, *(place for place in places if place not in _INSTALLED)]
    try:
        yield
    finally:
        sys.path[:] = places
        added = set(sys.modules) - known
        hidden = {name for name in added if "." not in name and _is_other_file(name)}
        for name in added:
            if name.partition(".")[0] in hidden:
                del sys.modules[name]


def _is_other_file(name: str) -> bool:
    """Whether the program would import ``name`` from a different file than the one that was imported."""
    present = getattr(sys.modules[name], "__spec__", None)
    if present is None or not present.has_location:
        return False
    own = importlib.machinery.PathFinder.find_spec(name)
    return own is not None and own.origin != present.origin


def _leave_note(text: str) -> None:
    """Write a note for ``record`` without importing the package. ``plan.py`` defines the format of notes."""
    import json

    try:
        folder = json.loads(os.environ["PERFTOOL_RECORD"])["notes"]
        with open(os.path.join(folder, f"{os.getpid()}-stranger.json"), "w", encoding="utf-8") as file:
            file.write(json.dumps({"stage": "stranger", "text": text, "trace": None}) + "\n")
    except (OSError, LookupError, ValueError):
        return


sys.meta_path.insert(0, _WaitForTorch())
