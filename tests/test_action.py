"""The steps of the action use their inputs as documented, in the shell that runs them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")
BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="no bash")
ROOT = Path(__file__).parents[1]
STEPS = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["runs"]["steps"]
PROGRAM = """#!/bin/sh
printf '%s\\n' "$@" > "$FOLDER.arguments"
printf '{"suppressed":false}\\n{"suppressed":true}\\n' > "$FOLDER.jsonl"
exit 1
"""


def step(name: str, folder: Path, checkout: Path | None = None, **env: str) -> tuple[int, dict[str, str]]:
    """Run the step ``name`` in ``checkout``, and return its exit code and outputs."""
    script = next(one["run"] for one in STEPS if one["name"] == name)
    out = folder / "output"
    out.write_text("")
    given = {"PATH": os.environ["PATH"], "GITHUB_OUTPUT": str(out), "RUNNER_TEMP": str(folder), **env}
    command = [str(BASH), "-e", "-o", "pipefail", "-c", script]
    done = subprocess.run(command, env=given, capture_output=True, text=True, cwd=checkout or folder)
    assert done.stderr == ""
    return done.returncode, dict(line.split("=", 1) for line in out.read_text().splitlines())


@pytest.mark.parametrize("programs", ["bin", "Scripts"])
def test_every_line_is_one_argument(tmp_path: Path, programs: str) -> None:
    folder = tmp_path / "venv"
    (folder / programs).mkdir(parents=True)
    program = folder / programs / "python"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    code, outputs = step(
        "Lint", tmp_path, FOLDER=str(folder), SRC="a b.json\n\nc/*.json\n", ARGS="--select\r\nGAP101,SYN101\n",
        BUDGETS="step_time_ms <= 120\nreads: SELECT 1 <= 3", CONFIG="$(touch owned)", FAIL_ON="error",
        BASELINE="ok.json",
        SARIF="",
    )  # fmt: skip

    assert (code, outputs) == (1, {"findings": "1"})
    assert (tmp_path / "venv.arguments").read_text().splitlines() == [
        "-I", "-m", "perftool", "lint", "--output-format", "github", "--also", f"json-lines:{folder}.jsonl",
        "--fail-on", "error",
        "--budget", "step_time_ms <= 120", "--budget", "reads: SELECT 1 <= 3", "--config", "$(touch owned)",
        "--select", "GAP101,SYN101", "--baseline", "ok.json", "--", "a b.json", "c/*.json",
    ]  # fmt: skip


def test_without_a_path_nothing_passes(tmp_path: Path) -> None:
    """Otherwise, only the logs that a configuration in the checkout names would be checked."""
    program = tmp_path / "bin" / "python"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    settings = dict.fromkeys(("ARGS", "BUDGETS", "CONFIG", "BASELINE", "SARIF"), "")
    code, _ = step("Lint", tmp_path, FOLDER=str(tmp_path), SRC=" \n", FAIL_ON="error", **settings)
    assert code == 2


def test_the_cache_is_for_one_python_and_one_text_of_the_checkout(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]")
    runner = {"RUNNER_OS": "Linux", "RUNNER_ARCH": "X64", "ACTION_PATH": str(tmp_path), "VERSION": ""}

    _, first = step("Choose", tmp_path, **runner)
    _, again = step("Choose", tmp_path, **runner)
    (tmp_path / "pyproject.toml").write_text("[other]")
    _, other = step("Choose", tmp_path, **runner)
    _, named = step("Choose", tmp_path, **{**runner, "VERSION": "0.1.0"})

    assert first == again != other
    assert first["folder"] == f"{tmp_path}/habana_perf_tool"
    assert named["key"].endswith("-0.1.0")


def planted(checkout: Path) -> None:
    """Add modules, as a pull request could, that shadow imports of the action. Each leaves a mark when imported."""
    checkout.mkdir()
    for name in ("hashlib", "venv", "pathlib", "pip", "perftool", "encodings", "sitecustomize", "_collections_abc"):
        (checkout / f"{name}.py").write_text("import sys, os; os.open(__file__ + '.ran', os.O_CREAT)\n")


def test_nothing_of_the_checkout_is_imported(tmp_path: Path) -> None:
    checkout, package = tmp_path / "checkout", tmp_path / "action"
    planted(checkout)
    package.mkdir()
    (package / "pyproject.toml").write_text("[project]")
    folder = tmp_path / "venv"
    runner = {"RUNNER_OS": "Linux", "RUNNER_ARCH": "X64", "ACTION_PATH": str(package), "VERSION": ""}

    step("Choose", tmp_path, checkout, **runner, PYTHONPATH=".")
    install = next(one["run"] for one in STEPS if one["name"] == "Install")
    # Run the step without the installation, which would need a package index. pip itself does run.
    given = {"PATH": os.environ["PATH"], "RUNNER_TEMP": str(tmp_path), "FOLDER": str(folder), "PYTHONPATH": "."}
    command = install.replace('install --quiet --disable-pip-version-check "$package"', "--version")
    assert command != install
    done = subprocess.run(
        [str(BASH), "-e", "-c", command], cwd=checkout, capture_output=True, text=True,
        env={**given, "VERSION": "1", "ACTION_PATH": str(package)},
    )  # fmt: skip
    assert done.stderr == ""
    installed = tmp_path / "installed" / "bin"
    installed.mkdir(parents=True)
    (installed / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (installed / "python").chmod(0o755)
    found = {
        "FOLDER": str(installed.parent), "SRC": "none.json", "ARGS": "", "BUDGETS": "", "CONFIG": "",
        "FAIL_ON": "error", "BASELINE": "", "SARIF": "",
    }  # fmt: skip
    lint = next(one["run"] for one in STEPS if one["name"] == "Lint")
    linted = subprocess.run(
        [str(BASH), "-e", "-c", lint], cwd=checkout, capture_output=True, text=True, env={**given, **found}
    )

    assert linted.returncode == 2
    assert not list(checkout.glob("*.ran"))
