"""Imports go down only, and heavy libraries stay out of the way of ``--help``."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import perftool

PACKAGE = Path(perftool.__file__).parent
# What each part may import of the program, besides itself.
BELOW: dict[str, set[str]] = {
    "errors": set(),
    "units": set(),
    "output_file": {"errors"},
    "signals": set(),
    "model": {"errors", "units"},
    "readers": {"model", "errors", "units"},
    # What an op needs, from its shapes alone.
    "op_costs": set(),
    "store": {"op_costs", "readers", "model", "errors", "units"},
    "replay": {"store", "model", "errors", "units"},
    "engine": {"replay", "store", "readers", "model", "signals", "errors", "units"},
    "reporters": {"engine", "replay", "store", "readers", "model", "errors", "units"},
    "fused": {"model", "errors", "units"},
    # The advised form of a benchmark is often a fused op.
    "bench": {"fused", "model", "output_file", "errors", "units"},
    # The simulated device offers Gaudi's fused classes, whose arithmetic is that of ``fused``.
    "sim": {"fused", "model", "output_file", "errors", "units"},
    # Records inside other people's programs and shows the result there: above the analysis, beside the commands.
    "integrations": {"api", "reporters", "readers", "model", "output_file", "errors", "units"},
}
# ``api`` and ``pytest_plugin`` are for Python what ``commands`` are for the shell; ``proof`` joins
# the wings with the rules; the package hands out its names.
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
    """Full names of all that ``path`` imports anywhere, also inside functions and for type checking."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def wrong_imports(path: Path) -> list[str]:
    """The imports of ``path`` that go up or sideways, or bring a library where it does not belong."""
    here = part(path)
    wrong = []
    for name in sorted(imports(path)):
        library, _, rest = name.partition(".")
        if library == "perftool" and rest and here not in TOP:
            target = rest.split(".")[0]
            # ``from perftool import __version__`` is a fact of the package, not of a part.
            if target not in BELOW[here] | {here, "__version__"}:
                wrong.append(name)
        if here not in ONLY_IN.get(library, {here}):
            wrong.append(name)
    return wrong


def test_there_is_something_to_check() -> None:
    assert {part(path) for path in MODULES} >= {"cli", "commands", "engine", "model", "readers", "reporters", "store"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_only(path: Path) -> None:
    assert wrong_imports(path) == []


def test_the_check_sees_wrong_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
