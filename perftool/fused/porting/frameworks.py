"""Lists where Gaudi's PyTorch bridge defines each name, and builds stub modules that raise errors for missing names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from perftool.fused import NAMES

BASE = "habana_frameworks.torch"

PLACES: dict[str, tuple[str, ...]] = {"hpex.optimizers": ("Adam", "AdamW")}
for (_, _place), _names in NAMES.items():
    PLACES[_place] = (*PLACES.get(_place, ()), *_names)
del PLACES[""]
"""Names of ops by the module from which scripts import them."""

FILES = {
    **{name: name for names in PLACES.values() for name in names if name.startswith(("Fused", "C"))},
    **{name: "RotaryPosEmbeddingHelper" for name in PLACES["hpex.kernels"] if "otary" in name.lower()},
    "Adam": "MarkstepAdam",
    "AdamW": "MarkstepAdamW",
    "RmsNormBwdMode": "FusedRMSNorm",
}
"""The submodule that defines an op on a Gaudi; scripts also import from it."""

Sentence = Callable[[str], str]
"""A function that returns the error message for a missing name, which includes its module."""


class _Made(ModuleType):
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(self.__dict__["__missing__"](f"{self.__name__}.{name}"), name=name, obj=self)


class Absent(MetaPathFinder):
    """Raises ImportError for an unknown submodule of a package, if no other finder finds it."""

    def __init__(self, package: str, missing: Sentence) -> None:
        self._package, self._missing = package, missing

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Raise ImportError for a name below the package."""
        if fullname.startswith(f"{self._package}."):
            raise ImportError(self._missing(fullname), name=fullname)


def module(name: str, missing: Sentence, members: Mapping[str, Any]) -> ModuleType:
    """Create a module with `members` that the import machinery treats as a package."""
    made = _Made(name, "A stub for a machine without a Gaudi.")
    made.__spec__ = ModuleSpec(name, None, is_package=True)
    made.__path__ = []
    made.__file__ = None
    made.__dict__.update(members, __missing__=missing, __stands_in__=True)
    return made


def placed(ops: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the members of the modules below `BASE` that contain these ops on a Gaudi, by module name."""
    members: dict[str, dict[str, Any]] = {}
    for name, op in ops.items():
        places = [place for place, names in PLACES.items() if name in names]
        for place in (*places, *(f"{place}.{FILES[name]}" for place in places if name in FILES)):
            members.setdefault(f"{BASE}.{place}", {})[name] = op
    return members


def with_packages(modules: Iterable[ModuleType], missing: Sentence) -> dict[str, ModuleType]:
    """Return the modules by name, and make each an attribute of its parent; missing parent packages are created. If a
    module and a member of its parent have the same name, the member wins, as on a Gaudi.
    """
    named = {each.__name__: each for each in modules}
    for name in sorted(named):
        while "." in name:
            above, _, last = name.rpartition(".")
            parent = named.setdefault(above, module(above, missing, {}))
            parent.__dict__.setdefault(last, named[name])
            name = above
    return named
