"""Python imports this at its start, because ``habana_perf_tool record`` put its folder on the path.

It waits until the program imports PyTorch, and then starts the recorder. A ``sitecustomize`` that the system has of its
own runs as it would have.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

_HERE = str(Path(__file__).parent)


class _WaitForTorch:
    """Finds PyTorch as everybody does, and starts the recorder when it has been imported."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _begin()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _begin() -> None:
    try:
        from perftool.integrations.record.recorder import begin
    except ImportError:
        # This Python is not the one that has the program installed. It says so where it started us.
        return
    begin()


def _run_the_next() -> None:
    """Run the ``sitecustomize`` that ours hides."""
    sys.path[:] = [place for place in sys.path if place != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_run_the_next()
sys.meta_path.insert(0, _WaitForTorch())
