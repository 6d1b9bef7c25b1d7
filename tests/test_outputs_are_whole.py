"""Every file that the program writes for a user goes through ``perftool.output_file``. No other module opens one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import perftool

PACKAGE = Path(perftool.__file__).parent
# Modules that write by other means, with the reason why their files are not documents for the user.
OTHERWISE = {
    "cli.py": "the null device, for a closed stream",
    "commands/lint.py": "GITHUB_STEP_SUMMARY, which GitHub wants appended to",
    "engine/rule_tests/case_traces.py": "a temporary folder",
    "engine/rule_tests/cases.py": "a temporary folder",
    "engine/rule_tests/check_pack.py": "a temporary folder",
    "integrations/saving.py": "the place that output_file gives",
    "integrations/server/recording.py": "new files in a new folder, where links must not be followed",
    "integrations/record/hook/perftool_hook.py": "a temporary folder, where the package cannot be imported",
    "integrations/record/plan.py": "a temporary folder",
    "integrations/record/trials.py": "the null device and its own priority, in a forked child",
    "output_file.py": "here it is",
    "readers/identity.py": "a temporary folder",
    "readers/nodes/bundle.py": "a temporary folder",
    "readers/trace/chrome_trace.py": "the folder for spooled events",
    "readers/trace/memory_snapshot.py": "a temporary folder",
    "sim/machine/write.py": "whether it can be written",
    "sim/spawned.py": "a temporary folder",
    "sim/stubs/device.py": "what a script on the simulated device asks of the library of Gaudi",
    "store/rank_export.py": "a temporary folder",
    "store/load_csv.py": "a temporary folder",
    "store/sandbox/inside.py": "the pipe",
    "bench/progress_output.py": "the null device, in place of a terminal",
    "integrations/machine.py": "the name of a thread, which the system keeps as a file",
    "proof.py": "the folder of a benchmark's traces",
    "bench/harness/order.py": "the folder of a benchmark's traces",
    "bench/harness/worker.py": "the folder of a benchmark's traces",
}
WRITING = {"write_text", "write_bytes", "copyfile", "move", "mkstemp", "rename", "NamedTemporaryFile"}


def writers(path: Path) -> list[int]:
    """Return the lines at which the code in ``path`` opens a file for writing, or writes a whole file with one call."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        modes = [part.value for part in (*node.args, *(key.value for key in node.keywords))
                 if isinstance(part, ast.Constant) and isinstance(part.value, str)]  # fmt: skip
        opens = name in ("open", "fdopen") and any(set(mode) <= set("rwaxbt+") & set(mode) and set(mode) & set("wax+")
                                                   for mode in modes)  # fmt: skip
        if opens or name in WRITING:
            found.append(node.lineno)
    return found


def test_nothing_else_writes_files() -> None:
    found = {path.relative_to(PACKAGE).as_posix(): lines for path in PACKAGE.rglob("*.py") if (lines := writers(path))}
    assert {name: lines for name, lines in found.items() if name not in OTHERWISE} == {}
    assert "output_file.py" in found


@pytest.mark.parametrize("text", ["open(p, 'w')", "p.open('ab')", "open(p, mode='xb')", "p.write_bytes(b'')"])
def test_the_check_finds_code_that_writes(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(text)
    assert writers(tmp_path / "a.py") == [1]
