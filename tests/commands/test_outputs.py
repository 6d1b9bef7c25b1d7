"""``-o`` may replace only regular files that the run does not read."""

from __future__ import annotations

import os
import stat
import sys
import threading
from pathlib import Path

import pytest
import typer
from builders import rule_files
from builders.program import Run
from events import document, step, x

from perftool.cli import app

TRACE = document([step(1, 0, 1000), x("aten::mm", 10, 30)])
# Every command that reads inputs and writes a document.
COMMANDS = {
    "analyze": ["analyze", "run.json"],
    "analyze a folder": ["analyze", "."],
    "report": ["report", "run.json"],
    "lint": ["lint", "run.json"],
    "diff": ["diff", "run.json", "run.json"],
    "diff folders": ["diff", ".", "."],
    "query": ["query", "run.json", "SELECT 1"],
    "annotate": ["annotate", "run.json"],
    "whatif": ["whatif", "run.json"],
}
# These commands read no trace. tests/sim/test_files.py covers the script of `simulate`.
ONLY_WRITE = {"rule", "benchmark", "demo", "record", "simulate"}
# Writes only to names that end in .duckdb, .xlsx or /, which no input has.
OF_TABLES = {"export"}
# Reads only parts; there is a test for them below.
OF_PARTS = {"merge"}
# Reads only summary files.
OF_SUMMARIES = {"trend"}


@pytest.fixture(autouse=True)
def _trace() -> None:
    Path("run.json").write_bytes(TRACE)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("name", ["run.json", "link.json", "hard.json"])
def test_no_command_overwrites_its_input(command: list[str], name: str, run: Run) -> None:
    Path("elsewhere").mkdir()
    if name == "link.json":
        os.symlink("../run.json", "elsewhere/link.json")
        name = "elsewhere/link.json"
    elif name == "hard.json":
        os.link("run.json", "elsewhere/hard.json")
        name = "elsewhere/hard.json"
    assert run(*command, "-o", name) == 2
    assert run.err.endswith(f"{name}: an input of this run, and inputs are never overwritten; use another file\n")
    assert Path("run.json").read_bytes() == TRACE


# Commands that accept a folder of ranks.
OF_FOLDERS = {
    "analyze": ["analyze", "."],
    "analyze --each": ["analyze", ".", "--each"],
    "report": ["report", "."],
    "lint": ["lint", "."],
    "diff": ["diff", ".", "."],
    "query": ["query", ".", "SELECT 1"],
    "whatif": ["whatif", "."],
    "annotate": ["annotate", "."],
}


@pytest.mark.parametrize("command", OF_FOLDERS.values(), ids=OF_FOLDERS)
def test_no_command_overwrites_traces_that_it_set_aside(command: list[str], run: Run) -> None:
    rank = document([step(1, 0, 1000), x("aten::mm", 10, 30)], distributedInfo={"rank": 0, "world_size": 2})
    for name in ("run.json", "copy.json"):
        Path(name).write_bytes(rank)
    assert run(*command, "-o", "run.json") == 2
    assert run.err.endswith("run.json: an input of this run, and inputs are never overwritten; use another file\n")
    assert Path("run.json").read_bytes() == rank


@pytest.mark.parametrize("command", OF_FOLDERS.values(), ids=OF_FOLDERS)
def test_no_command_overwrites_older_recordings_in_a_folder(command: list[str], run: Run) -> None:
    Path("run.json").unlink()
    for time in (1_000_000_000_000, 1_700_000_000_000):
        Path(f"host_7.{time}.pt.trace.json").write_bytes(TRACE)
    chosen = ["--run", "newest"] if command[0] == "lint" else []
    assert run(*command, *chosen, "-o", "host_7.1000000000000.pt.trace.json") == 2
    assert ": an input of this run" in run.err
    assert Path("host_7.1000000000000.pt.trace.json").read_bytes() == TRACE


def test_every_command_that_writes_is_tested_here() -> None:
    commands = typer.main.get_command(app).commands
    writing = {name for name, command in commands.items() if any("-o" in option.opts for option in command.params)}
    elsewhere = ONLY_WRITE | OF_TABLES | OF_PARTS | OF_SUMMARIES
    assert writing - elsewhere == {arguments[0] for arguments in COMMANDS.values()}


@pytest.mark.parametrize("option", [["--also", "sarif:run.json"], ["--write-baseline", "run.json"]])
def test_other_outputs_of_lint_overwrite_no_input(option: list[str], run: Run) -> None:
    assert run("lint", "run.json", *option) == 2
    assert ": an input of this run" in run.err
    assert Path("run.json").read_bytes() == TRACE


@pytest.mark.parametrize("option", ["-o", "--part"])
def test_merge_overwrites_no_part(option: str, run: Run) -> None:
    assert run("analyze", "run.json", "--select", "TRC", "--part", "run.part") == 0
    made = Path("run.part").read_bytes()
    assert run("merge", "run.part", "--select", "TRC", option, "run.part") == 2
    assert run.err.endswith("run.part: an input of this run, and inputs are never overwritten; use another file\n")
    assert Path("run.part").read_bytes() == made


def test_trend_overwrites_no_summary_file(run: Run) -> None:
    assert run("analyze", "run.json", "--select", "TRC", "--summary-jsonl", "n.jsonl") == 0
    made = Path("n.jsonl").read_bytes()
    assert run("trend", "n.jsonl", "-o", "n.jsonl") == 2
    assert Path("n.jsonl").read_bytes() == made


def test_a_log_beside_the_trace_is_an_input_too(run: Run) -> None:
    Path("console.log").write_text("::: \n")
    assert run("analyze", "run.json", "--log", "console.log", "-o", "console.log") == 2
    assert Path("console.log").read_text() == "::: \n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_written_to_and_stays_one(run: Run) -> None:
    os.mkfifo("pipe")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(Path("pipe").read_bytes()), daemon=True)
    reader.start()
    assert run("query", "run.json", "SELECT 1 AS one", "--output-format", "csv", "-o", "pipe") == 0
    reader.join(20)
    assert got == [b"one\n1\n"]
    assert stat.S_ISFIFO(os.stat("pipe").st_mode)


def test_a_device_is_written_to_and_stays_one(run: Run) -> None:
    assert run("query", "run.json", "SELECT 1", "-o", os.devnull) == 0
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_a_link_is_followed_and_stays_one(run: Run) -> None:
    Path("real.csv").write_text("old")
    os.chmod("real.csv", 0o600)
    os.symlink("real.csv", "link.csv")
    assert run("query", "run.json", "SELECT 1 AS one", "--output-format", "csv", "-o", "link.csv") == 0
    assert (os.readlink("link.csv"), Path("real.csv").read_text()) == ("real.csv", "one\n1\n")
    # Users who could not read the old file cannot read the new one either.
    assert stat.S_IMODE(os.stat("real.csv").st_mode) == 0o600


def test_a_folder_is_refused_as_an_output_file(run: Run) -> None:
    Path("folder").mkdir()
    assert run("query", "run.json", "SELECT 1", "-o", "folder") == 2
    assert run.err == "habana_perf_tool: folder: cannot write (Is a directory)\n"


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder in which nobody can make files")
def test_an_impossible_output_path_is_named(run: Run) -> None:
    assert run("export", "run.json", "-o", "/proc/x.duckdb") == 2
    assert run.err == "habana_perf_tool: /proc/x.duckdb: cannot write (No such file or directory)\n"


@pytest.mark.parametrize("name", ["pipe.duckdb", "link.duckdb", "folder.duckdb"])
def test_tables_replace_no_pipe_and_no_folder_also_behind_a_link(name: str, run: Run) -> None:
    os.mkfifo("pipe.duckdb")
    os.symlink("pipe.duckdb", "link.duckdb")
    Path("folder.duckdb").mkdir()
    before = sorted(path.name for path in Path().iterdir())

    assert run("export", "run.json", "-o", name) == 2

    assert run.err == f"habana_perf_tool: {name}: not a regular file, so it cannot be replaced; use another file\n"
    assert sorted(path.name for path in Path().iterdir()) == before
    assert stat.S_ISFIFO(os.stat("pipe.duckdb").st_mode)


def test_tables_follow_a_link_and_keep_it(run: Run) -> None:
    Path("real.duckdb").touch(mode=0o600)
    os.symlink("real.duckdb", "link.duckdb")
    assert run("export", "run.json", "-o", "link.duckdb") == 0
    assert Path("link.duckdb").is_symlink()
    assert Path("real.duckdb").stat().st_size > 0
    assert stat.S_IMODE(Path("real.duckdb").stat().st_mode) == 0o600


def test_trust_config_also_works_with_a_bare_trace(run: Run) -> None:
    Path("stranger").mkdir()
    Path("run.json").rename("stranger/run.json")
    Path("stranger/habana_perf_tool.toml").write_text('output-file = "victim.txt"')
    assert run("--trace", "stranger/run.json") == 2
    assert "key output-file: a discovered configuration may not write" in run.err
    assert not Path("stranger/victim.txt").exists()
    assert run("--trace", "stranger/run.json", "--trust-config") == 0
    assert Path("stranger/victim.txt").stat().st_size > 0


READ = [
    ["lint", "run.json", "--config", "c.toml", "-o", "c.toml"],
    ["lint", "run.json", "--config", "c.toml", "-o", "link.toml"],
    ["lint", "run.json", "--config", "c.toml", "--also", "json:base.toml"],
    ["lint", "run.json", "--config", "c.toml", "--write-baseline", "hard.toml"],
    ["lint", "run.json", "--baseline", "b.json", "-o", "b.json"],
    ["lint", "run.json", "--rules", "rules", "-o", "rules/USR901.toml"],
    ["analyze", "run.json", "--config", "c.toml", "-o", "c.toml"],
    ["diff", "run.json", "run.json", "--config", "c.toml", "-o", "c.toml"],
    ["query", "run.json", "SELECT 1", "--config", "c.toml", "-o", "c.toml"],
    ["rule", "USR901", "--rules", "rules", "-o", "rules/USR901.toml"],
    ["rule", "--all", "--rules", "rules", "-o", "rules/USR901.toml"],
    ["rule", "--check", "rules", "-o", "rules/USR901.toml"],
    ["benchmark", "--list", "--from", "report.json", "-o", "report.json"],
]  # fmt: skip


@pytest.mark.parametrize("command", READ, ids=" ".join)
def test_no_output_replaces_a_configuration_a_rule_or_a_baseline(command: list[str], run: Run) -> None:
    Path("base.toml").write_text("jobs = 1\n")
    Path("c.toml").write_text('extend = "base.toml"\n')
    os.symlink("c.toml", "link.toml")
    os.link("c.toml", "hard.toml")
    Path("b.json").write_text('{"version": 1, "findings": []}')
    Path("report.json").write_text('{"findings": []}')
    Path("rules").mkdir()
    rule_files.write(Path("rules"))
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}

    assert run(*command) == 2
    assert run.err.endswith(": an input of this run, and inputs are never overwritten; use another file\n")
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "command",
    [
        ["lint", "run.json", "--write-baseline", "o.json", "--output-format", "json", "-o", "o.json"],
        ["lint", "run.json", "--also", "sarif:o.json", "--also", "json:./o.json"],
        ["analyze", "run.json", "--output-format", "json", "--summary-jsonl", "o.json", "-o", "o.json"],
        ["analyze", "run.json", "--part", "o.part", "-o", "o.part"],
    ],
    ids=" ".join,
)
def test_each_output_needs_a_file_of_its_own(command: list[str], run: Run) -> None:
    assert run(*command) == 2
    assert run.err.endswith(": two outputs cannot be written to the same file\n")
    assert not Path("o.json").exists()


def test_a_baseline_may_be_replaced_by_its_successor(run: Run) -> None:
    assert run("lint", "run.json", "--write-baseline", "b.json") == 0
    assert run("lint", "run.json", "--baseline", "b.json", "--write-baseline", "b.json") == 0


@pytest.mark.parametrize("target", ["run.duckdb", "run.xlsx", "run/"])
def test_a_table_that_is_named_twice_is_exported_once(target: str, run: Run) -> None:
    if target == "run.xlsx":
        pytest.importorskip("xlsxwriter")
    tables = ("--table", "steps", "--table", "ops", "--table", "steps")
    assert run("export", "run.json", "-o", target, *tables) == 0, run.err
    assert run.err == f"Wrote {target}\n"
