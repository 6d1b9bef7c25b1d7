"""Checks that parts import only from parts below them, that no folders import each other in a circle, and that
``--help`` does not load heavy libraries.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import perftool

PACKAGE = Path(perftool.__file__).parent
# The other parts of the program that each part may import.
BELOW: dict[str, set[str]] = {
    "errors": set(),
    "units": set(),
    "output_file": {"errors"},
    "signals": set(),
    "model": {"errors", "units"},
    "readers": {"model", "errors", "units"},
    # The cost of an op depends only on its shapes.
    "op_costs": set(),
    "store": {"op_costs", "readers", "model", "errors", "units"},
    "replay": {"store", "model", "errors", "units"},
    "engine": {"replay", "store", "readers", "model", "signals", "errors", "units"},
    "reporters": {"engine", "replay", "store", "readers", "model", "errors", "units"},
    "fused": {"model", "errors", "units"},
    # The advised form of a benchmark is often a fused op.
    "bench": {"fused", "model", "output_file", "errors", "units"},
    # The simulated device offers Gaudi's fused classes and computes them with ``fused``.
    "sim": {"fused", "model", "output_file", "errors", "units"},
    # Records and shows reports inside users' programs, so it is above the analysis and beside the commands.
    "integrations": {"api", "reporters", "readers", "model", "output_file", "errors", "units"},
}
# ``api`` and ``pytest_plugin`` are the Python counterparts of ``commands``. ``proof`` combines benchmarks, the
# simulator and rules. The package itself exports the public names.
TOP = {"cli", "commands", "api", "proof", "pytest_plugin", "__init__", "__main__"}
ONLY_IN = {
    "typer": {"cli", "commands", "reporters"},
    "rich": {"cli", "commands", "reporters"},
    "torch": {"fused", "bench", "sim", "integrations"},
    "lightning": {"integrations"},
    "pytorch_lightning": {"integrations"},
    "transformers": {"integrations"},
    "habana_frameworks": {"fused", "bench", "sim"},
}
MODULES = sorted(PACKAGE.rglob("*.py"))


def part(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Return the full names of all imports in ``path``, including those inside functions and those for type
    checking.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def wrong_imports(path: Path) -> list[str]:
    """Return the imports of ``path`` that go up or sideways, or that load a library where this is not allowed."""
    here = part(path)
    wrong = []
    for name in sorted(imports(path)):
        library, _, rest = name.partition(".")
        if library == "perftool" and rest and here not in TOP:
            target = rest.split(".")[0]
            # ``from perftool import __version__`` belongs to the package rather than to a part.
            if target not in BELOW[here] | {here, "__version__"}:
                wrong.append(name)
        if here not in ONLY_IN.get(library, {here}):
            wrong.append(name)
    return wrong


def test_there_is_something_to_check() -> None:
    assert {part(path) for path in MODULES} >= {"cli", "commands", "engine", "model", "readers", "reporters", "store"}


def test_imports_go_down_only() -> None:
    wrong = {str(path.relative_to(PACKAGE)): wrong_imports(path) for path in MODULES}
    assert {path: names for path, names in wrong.items() if names} == {}


def folders_used(path: Path) -> Iterator[tuple[Path, Path]]:
    """Yield, for each import of ``path`` from another folder, the two folders directly below their common parent."""
    for name in imports(path):
        target = PACKAGE.parent.joinpath(*name.split("."))
        while not (target.is_dir() or target.with_suffix(".py").is_file()) and target != PACKAGE.parent:
            target = target.parent
        there = target if target.is_dir() else target.parent
        here = path.parent
        shared = next(folder for folder in (there, *there.parents) if here.is_relative_to(folder))
        if PACKAGE in (shared, *shared.parents) and shared not in (here, there):
            yield shared / here.relative_to(shared).parts[0], shared / there.relative_to(shared).parts[0]


def circle(paths: Iterable[Path]) -> list[str]:
    """Return neighbouring folders that import each other in a circle, or an empty list."""
    uses: dict[str, set[str]] = {}
    for path in paths:
        for here, there in folders_used(path):
            uses.setdefault(str(here.relative_to(PACKAGE)), set()).add(str(there.relative_to(PACKAGE)))
    try:
        TopologicalSorter(uses).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_folders_import_each_other() -> None:
    assert circle(MODULES) == []


def test_the_check_finds_circles_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "perftool"
    for folder, other in (("one", "two"), ("two", "one")):
        (package / "engine" / folder).mkdir(parents=True)
        (package / "engine" / folder / "a.py").write_text(f"from perftool.engine.{other}.a import f\n")
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", package)
    assert circle(package.rglob("*.py")) in (
        ["engine/one", "engine/two", "engine/one"],
        ["engine/two", "engine/one", "engine/two"],
    )


def test_the_check_finds_wrong_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "readers" / "bad.py"
    module.parent.mkdir()
    module.write_text("import torch\nfrom rich.text import Text\ndef f():\n    from perftool.store import load\n")
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    assert wrong_imports(module) == ["perftool.store.load", "rich.text.Text", "torch"]


@pytest.mark.parametrize("module", ["perftool.cli", "perftool"])
def test_heavy_libraries_are_not_imported_up_front(module: str) -> None:
    heavy = {"pandas", "torch", "plotly", "duckdb", "numpy", "pydantic", "perftool.commands.analyze"}
    code = f"import sys, {module}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
