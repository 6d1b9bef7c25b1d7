"""Which lines of a recorded stack are the user's own."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from itertools import pairwise

# Below these folders lie packages that somebody installed.
_INSTALLED = {"site-packages", "dist-packages"}
_PYTHON = re.compile(r"python\d(\.\d+)?t?")
# The profiler writes paths without the folders that Python imports from, so these are known by their first part only.
_FRAMEWORKS = {
    "torch", "torchvision", "torchaudio", "functorch", "triton", "torchgen", "habana_frameworks", "numpy", "PIL",
    "tqdm", "perftool", "_distutils_hack", "pkg_resources", "pytorch_lightning", "lightning", "lightning_fabric",
    "lightning_utilities", "torchmetrics", "accelerate", "deepspeed",
}  # fmt: skip
# Of the top level of a trace that was recorded here: packages that were installed where it was recorded.
INSTALLED_KEY = "perftoolInstalled"
_FRAME = re.compile(r"(.+)\((\d+)\): (.+)")

Line = tuple[str | None, int | None, str]


def is_own(file: str, installed: Collection[str] = ()) -> bool:
    """Whether ``file``, as a trace names it, is neither Python's, nor the framework's, nor of an installed package.

    ``installed`` are packages (the first parts of relative paths) that are known to be installed ones.
    """
    if file.startswith("<"):
        return False
    parts = [part for part in re.split(r"[\\/]", file) if part not in ("", ".")]
    if any(part in _INSTALLED for part in parts):
        return False
    if any(_PYTHON.fullmatch(part) and before in ("lib", "lib64", "Lib") for before, part in pairwise(parts)):
        return False
    absolute = file.startswith(("/", "\\")) or file[1:2] == ":"
    top = package_of(file)
    return absolute or (top not in sys.stdlib_module_names and top not in _FRAMEWORKS and top not in installed)


def package_of(file: str) -> str:
    """The first part of the path ``file``: of a relative one, the package or module it belongs to."""
    parts = [part for part in re.split(r"[\\/]", file) if part not in ("", ".")]
    return parts[0].removesuffix(".py") if parts else ""


def innermost(stack: str, installed: Collection[str] = ()) -> Line | None:
    """The innermost line of the user's own in a call stack, whose lines are separated by semicolons."""
    for text in stack.split(";"):
        found = _FRAME.fullmatch(text.strip())
        if found and is_own(found[1], installed):
            return found[1], int(found[2]), found[3]
    return None
