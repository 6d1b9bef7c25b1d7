"""The package ``habana_frameworks`` as modules that are made, not found; a name that is missing says so by its own."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from perftool.sim.session.patches import item

_PACKAGE = "habana_frameworks"


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(_not_modelled(f"{self.__name__}.{name}"))


class _Finder(MetaPathFinder):
    """Asked for what is in none of the modules."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Raises ImportError for a name below the package."""
        if fullname.startswith(f"{_PACKAGE}."):
            raise ImportError(_not_modelled(fullname), name=fullname)


def _not_modelled(name: str) -> str:
    return f"{name} is not modelled by the simulator (docs/simulator.md says what is)"


def module(name: str, **members: Any) -> ModuleType:
    """A module made of ``members``, which import machinery takes for a package."""
    made = _StandIn(name, "A stand-in of the simulated Gaudi.")
    made.__spec__ = ModuleSpec(name, None, is_package=True)
    made.__path__ = []
    made.__file__ = None
    made.__dict__.update(members)
    return made


@contextmanager
def installed(modules: Iterable[ModuleType]) -> Iterator[None]:
    """Inside, ``modules`` can be imported, each as an attribute of the one above; packages between are made."""
    named = {each.__name__: each for each in modules}
    for name in sorted(named):
        while "." in name:
            above, _, last = name.rpartition(".")
            parent = named.setdefault(above, module(above))
            parent.__dict__.setdefault(last, named[name])
            name = above
    with ExitStack() as stack:
        for name, each in named.items():
            stack.enter_context(item(sys.modules, name, each))
        finder = _Finder()
        sys.meta_path.append(finder)
        stack.callback(sys.meta_path.remove, finder)
        yield
