"""Provides ``habana_frameworks`` for the simulated device. Using a name that is not modelled raises an error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

from perftool.fused.porting import frameworks
from perftool.sim.patches import item

_PACKAGES = ("habana_frameworks", "lightning_habana")


def _not_modelled(name: str) -> str:
    return f"{name} is not modelled by the simulator (docs/simulator.md says what is)"


def module(name: str, **members: Any) -> ModuleType:
    """Return a module with ``members`` that the import machinery treats as a package."""
    return frameworks.module(name, _not_modelled, members)


@contextmanager
def installed(modules: Iterable[ModuleType]) -> Iterator[None]:
    """Make ``modules`` importable within the block, each as an attribute of its parent. Missing parent packages are
    created."""
    with ExitStack() as stack:
        for name, each in frameworks.with_packages(modules, _not_modelled).items():
            stack.enter_context(item(sys.modules, name, each))
        for package in _PACKAGES:
            finder = frameworks.Absent(package, _not_modelled)
            sys.meta_path.append(finder)
            stack.callback(sys.meta_path.remove, finder)
        yield
