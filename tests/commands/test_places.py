"""Locked files, pipes, closed streams, and Ctrl-C at any time."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders.program import Run
from events import document, step, x

import perftool
from perftool.errors import is_interrupt

ROOT = Path(perftool.__file__).parent.parent
TRACE = document([step(1, 0, 1000), x("aten::mm", 10, 30)])


def process(*arguments: str, **how: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the program in a separate process and return its result."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-m", "perftool", *arguments], env=environment, timeout=120, **how)


@pytest.fixture
def lock(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that makes a file unreadable, even for root, who can normally open any file."""

    def apply(name: str) -> None:
        opened = builtins.open

        def refuse(file: Any, *arguments: Any, **keys: Any) -> Any:
            if str(file) == name:
                raise PermissionError(13, "Permission denied", name)
            return opened(file, *arguments, **keys)

        monkeypatch.setattr(builtins, "open", refuse)

    return apply


@pytest.mark.parametrize("name", ["locked.json", "locked.json.gz", "locked.log", "locked.csv"])
def test_a_file_that_may_not_be_opened_is_named(name: str, run: Run, lock: Callable[[str], None]) -> None:
    Path(name).write_bytes(TRACE)
    lock(name)
    assert run("analyze", name) == 2
    assert (run.out, run.err) == ("", f"habana_perf_tool: {name}: cannot open (Permission denied)\n")


def test_a_locked_file_is_the_only_one_left_out(run: Run, lock: Callable[[str], None]) -> None:
    for rank in range(3):
        Path(f"rank{rank}.json").write_bytes(TRACE)
    lock("rank1.json")
    assert run("lint", ".", "--select", "TRC") == 1
    assert run.out.startswith("rank1.json: TRC000 [error] rank1.json: cannot open (Permission denied)\n")


def test_a_folder_that_may_not_be_entered_is_not_empty(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("locked").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: path != "locked")
    assert run("analyze", "locked") == 2
    assert run.err == "habana_perf_tool: locked: the folder cannot be opened (Permission denied)\n"


def test_a_folder_without_permission(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = os.stat

    def refuse(path: Any, *arguments: Any, **keys: Any) -> os.stat_result:
        if str(path).endswith("locked/run.json"):
            raise PermissionError(13, "Permission denied", path)
        return looked(path, *arguments, **keys)

    monkeypatch.setattr(os, "stat", refuse)
    assert run("analyze", "locked/run.json") == 2
    assert run.err == "habana_perf_tool: locked/run.json: cannot open (Permission denied)\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    os.mkfifo("run.json")
    writer = threading.Thread(target=Path("run.json").write_bytes, args=(TRACE,), daemon=True)
    writer.start()
    ran = process("query", "run.json", "SELECT name FROM ops", cwd=tmp_path, capture_output=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"name\naten::mm\n", b"")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_a_folder_is_left_alone(run: Run) -> None:
    Path("run.json").write_bytes(TRACE)
    os.mkfifo("never.json")
    assert run("query", ".", "SELECT path FROM inputs") == 0
    assert run.out == "path\nrun.json\n"


def test_a_closed_stdin_is_reported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert run("analyze", "-") == 2
    assert run.err == "habana_perf_tool: -: standard input is closed\n"


def test_stdin_cannot_be_both_sides_of_a_comparison(run: Run) -> None:
    assert run("diff", "-", "-") == 2
    assert run.err == "habana_perf_tool: '-' can be used only once\n"


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
def test_closed_outputs_are_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(TRACE)
    call = f"'{sys.executable}' -m perftool lint run.json --select TRC >&- 2>&-"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run(["sh", "-c", call], cwd=tmp_path, env=environment, timeout=120).returncode == 0


def test_the_help_fits_any_encoding() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii", "COLUMNS": "40"}
    call = [sys.executable, "-m", "perftool", "lint", "--help"]
    ran = subprocess.run(call, env=environment, timeout=120, capture_output=True)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_ctrl_c_in_a_query_is_not_a_failure() -> None:
    assert is_interrupt(KeyboardInterrupt())
    # DuckDB's message for Ctrl-C.
    assert is_interrupt(RuntimeError("Query interrupted"))
    assert not is_interrupt(RuntimeError("another"))


# DuckDB and Python raise these on Ctrl-C. Without special care, typer would exit silently.
@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("timed", RuntimeError("Query interrupted")), ("timed", KeyboardInterrupt()),
        ("build", RuntimeError("Query interrupted")), ("add_trace", KeyboardInterrupt()),
    ],
)  # fmt: skip
def test_ctrl_c_ends_the_run(place: str, error: BaseException, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from perftool.store.trace_store import TraceStore

    def interrupted(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(TraceStore, place, interrupted)
    Path("run.json").write_bytes(TRACE)
    # An interrupted rule must not be reported as crashed.
    assert run("lint", "run.json") == 130
    assert (run.out, run.err) == ("", "habana_perf_tool: interrupted\n")


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_sigterm_leaves_no_temporary_folder(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    Path("run.json").write_bytes(TRACE)
    endless = "SELECT sum(a.range * b.range) FROM ops, range(10000000) AS a, range(10000000) AS b"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    command = [sys.executable, "-m", "perftool", "query", "run.json", endless]
    child = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    # The table is exported just before the sandbox starts to run the query.
    wait_for(lambda: list(temporary.glob("perftool-*/sandbox_tables/ops.duckdb")), 60)
    time.sleep(1)
    child.terminate()
    _, said = child.communicate(timeout=60)
    assert (child.returncode, said) == (143, b"habana_perf_tool: terminated\n")
    assert list(temporary.iterdir()) == []


def wait_for(seen: Callable[[], Any], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not seen() and time.monotonic() < until:
        time.sleep(0.02)


@pytest.mark.parametrize("name", ["a\n::error ::b.json", "a\n  ##[error]b.json", "a\r::error ::b.json"])
def test_file_names_are_escaped_in_ci_commands(name: str, run: Run) -> None:
    assert run("analyze", name) == 2
    assert not any(line.lstrip().startswith(("::", "##")) for line in run.err.splitlines())
    Path(name).write_bytes(TRACE)
    for options in (
        ["analyze", name, "--select", "TRC"],
        ["lint", name, "--select", "TRC"],
        ["query", name, "SELECT 1"],
    ):
        assert run(*options) in (0, 1)
        shown = (run.out + run.err).splitlines()
        assert not any(line.lstrip().startswith(("::", "##")) for line in shown)
