"""What a user sees: arguments, exit code, stdout and stderr. ``--refresh-golden`` rewrites tests/golden/cli."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from events import Event, document, kernel, runtime, step, x

import perftool
from perftool.cli import app, main

GOLDEN = Path(__file__).parent / "golden" / "cli"
ROOT = Path(perftool.__file__).parent.parent


def healthy() -> list[Event]:
    """Return two steps of 1 ms in which the device works 96 % of the time."""
    events = []
    for number, at in enumerate((1000, 2000), 1):
        events += [
            step(number, at, 990),
            x("aten::mm", at + 5, 30),
            runtime("cudaLaunchKernel", at + 10, 10, number),
            kernel("gemm", at + 30, 960, number),
        ]
    return events


FILES: dict[str, bytes] = {
    "good.json": document(healthy(), deviceProperties=[{"id": 0, "name": "NVIDIA A100"}]),
    "good.json.gz": gzip.compress(document(healthy()), mtime=0),
    "damaged.json": document(healthy()).replace(b"aten::mm", b"aten::\x01mm", 1),
    "starved.json": document([step(1, 0, 1000), *healthy()[1:2], runtime("cudaLaunchKernel", 800, 10, 5),
                              kernel("gemm", 820, 180, 5)]),
    "empty.json": b"",
    "text.json": b"hello",
    "other.json": b'{"a": 1}',
    "nothing/readme.md": b"no traces here",
}  # fmt: skip


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a current folder that contains ``FILES``."""
    for name, data in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cli(remembered: None, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """Return a function that runs the program in this process, through the entry point of the console script."""

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["habana_perf_tool", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        code = caught.value.code
        return Ran(code if isinstance(code, int) else 0, *capfd.readouterr())

    return run


def process(*arguments: str, **how: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the program in a separate process and return its result."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-m", "perftool", *arguments], env=environment, timeout=60, **how)


# The keys are the names of golden files. These contain only our own text, so that no library can change them.
CASES: dict[str, tuple[str, ...]] = {
    "no-such-file": ("--trace", "none.json"),
    "empty-file": ("--trace", "empty.json"),
    "not-json": ("--trace", "text.json"),
    "not-a-trace": ("--trace", "other.json"),
    "folder-without-traces": ("analyze", "nothing"),
    "pattern-without-match": ("analyze", "*.trace"),
    "text": ("--trace", "good.json"),
    "text-full": ("--trace", "starved.json", "--full"),
    "each": ("analyze", "--each", "good.json", "other.json", "starved.json"),
    "each-json": ("analyze", "--each", "good.json", "--output-format", "json"),
    "text-of-a-damaged-trace": ("--trace", "damaged.json"),
    "text-with-findings": ("analyze", "starved.json"),
    "one-of-two-unreadable": ("analyze", "good.json", "other.json"),
    "json": ("--trace", "good.json", "--output-format", "json"),
    "gzip": ("analyze", "good.json.gz"),
    "trace-and-command": ("--trace", "good.json", "query", "--tables"),
    "query-table": ("query", "good.json", "SELECT name, dur FROM device_ops ORDER BY ts"),
    "query-csv": ("query", "good.json", "SELECT name, dur, input_dims FROM ops ORDER BY ts", "--output-format", "csv"),
    "query-json": ("query", "good.json", "SELECT step, kernel FROM steps", "--output-format", "json"),
    "query-no-rows": ("query", "good.json", "SELECT name FROM collectives", "--output-format", "json"),
    "query-not-a-select": ("query", "good.json", "DROP TABLE raw"),
    "query-two-statements": ("query", "good.json", "SELECT 1; SELECT 2"),
    "query-wrong-column": ("query", "good.json", "SELECT nonsense FROM steps"),
    "query-a-file": ("query", "good.json", "SELECT * FROM read_text('good.json')"),
    "query-without-sql": ("query", "good.json"),
}


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str, cli, request: pytest.FixtureRequest) -> None:
    arguments = CASES[case]
    ran = cli(*arguments)
    shown = f"$ habana_perf_tool {' '.join(map(quoted, arguments))}\nexit {ran.code}\n"
    shown += f"--- stdout\n{stable(ran.out)}--- stderr\n{ran.err}"
    golden = GOLDEN / f"{case}.txt"
    if request.config.getoption("--refresh-golden"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(shown, encoding="utf-8")
    assert shown == golden.read_text(encoding="utf-8")


def quoted(argument: str) -> str:
    return f'"{argument}"' if " " in argument else argument


def stable(text: str) -> str:
    """Remove the parts that change with every new rule and every release."""
    text = re.sub(r"\d+ rules applied", "N rules applied", text)
    text = re.sub(r"(Not applicable to this input:)[^\n]*(\n[A-Z]{1,4}\d{3}[^\n]*)*", r"\1 ...", text)
    text = re.sub(r'"not_applicable": \[[^]]*\]', '"not_applicable": [...]', text)
    return re.sub(rf'"version": "{re.escape(perftool.__version__)}"', '"version": "X.Y.Z"', text)


def test_every_golden_file_has_its_case() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.txt")) == sorted(CASES)


def test_version(cli) -> None:
    expected = Ran(0, f"habana_perf_tool {perftool.__version__}\n", "")
    assert [cli("--version"), cli("-V")] == [expected, expected]


COMMANDS = [(name,) for name in typer.main.get_command(app).commands]


@pytest.mark.parametrize("command", [(), *COMMANDS])
def test_help(command: tuple[str, ...], cli) -> None:
    ran = cli(*command, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert "Usage: " in ran.out
    assert "Examples:" in ran.out
    assert cli(*command, "-h") == ran


def test_no_arguments_print_help(cli) -> None:
    ran = cli()
    assert (ran.code, ran.out.rstrip(), ran.err) == (2, cli("--help").out.rstrip(), "")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--nonsense",), "--nonsense"),
        (("analyse", "good.json"), "analyse"),
        (("analyze",), "PATHS"),
        (("--trace", "good.json", "--output-format", "xml"), "xml"),
        (("query", "good.json", "SELECT 1", "--time-limit", "soon"), "--time-limit"),
        (("query", "good.json", "SELECT 1", "--time-limit", "1e12"), "86400"),
        (("query", "good.json", "SELECT 1", "--time-limit", "inf"), "86400"),
        (("query", "good.json", "SELECT 1", "--time-limit", "nan"), "--time-limit"),
        (("analyze", "--watch", ".", "--interval", "1e300"), "86400"),
        (("record", "--server", "http://127.0.0.1:9", "--seconds", "inf"), "86400"),
        (("record",), "name a program after --, or a server with --server"),
        (("record", "--server", "http://127.0.0.1:9", "--", "train.py"), "exclude each other"),
        (("mcp", "--root", ".", "--time-limit", "1e300"), "86400"),
        (("simulate", "no.py", "--ranks", "1000000000000000000000"), "256"),
    ],
)
def test_wrong_options(arguments: tuple[str, ...], named: str, cli) -> None:
    ran = cli(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert named in ran.err


def test_stdin(folder: Path) -> None:
    ran = process(
        "analyze", "-", "--select", "TRC", "--output-format", "json", input=FILES["good.json.gz"], capture_output=True
    )
    report = json.loads(ran.stdout)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert report["inputs"][0] | {"issues": None} == {
        "path": "<stdin>", "kind": "trace", "rank": 0, "bytes": len(FILES["good.json.gz"]), "events": 8,
        "status": "ok", "issues": None,
    }  # fmt: skip


def test_the_document_goes_to_the_file_and_a_note_to_stderr(cli, tmp_path: Path) -> None:
    ran = cli("--trace", "good.json", "--output-format", "json", "-o", "report.json")
    assert ran == Ran(0, "", "Wrote report.json\n")
    assert (tmp_path / "report.json").read_text() == cli("--trace", "good.json", "--output-format", "json").out
    assert cli("--trace", "good.json", "-o", "report.txt", "-q") == Ran(0, "", "")
    assert cli("--trace", "good.json", "-o", "none/report.txt").code == 2


def test_every_table_is_listed(cli) -> None:
    from perftool.store.catalog import catalog

    ran = cli("query", "--tables")
    public = [table for table in catalog().values() if table.public]
    assert (ran.code, ran.err) == (0, "")
    assert re.findall(r"^(\w+): ", ran.out, re.MULTILINE) == [table.name for table in public]
    assert len(re.findall(r"^  \w+ +\w", ran.out, re.MULTILINE)) == sum(len(table.columns) for table in public)


ESCAPE = "\x1b["


@pytest.mark.parametrize(
    ("options", "environment", "coloured"),
    [
        ((), {}, False),
        ((), {"FORCE_COLOR": "1"}, True),
        ((), {"CLICOLOR_FORCE": "1"}, True),
        ((), {"FORCE_COLOR": ""}, False),
        ((), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ((), {"FORCE_COLOR": "1", "NO_COLOR": ""}, True),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
        (("--color", "never"), {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colour(
    options: tuple[str, ...], environment: dict[str, str], coloured: bool, cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TERM": "xterm-256color", **environment}.items():
        monkeypatch.setenv(name, value)
    ran = cli("--trace", "starved.json", *options)
    assert (ran.code, ESCAPE in ran.out, ran.err) == (0, coloured, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("analyze", "good.json", "--select", "TRC"),
        ("analyze", "good.json", "--select", "TRC", "--output-format", "json"),
        ("lint", "good.json", "--select", "TRC"),
        ("query", "--tables"),
        ("query", "good.json", "SELECT name FROM slices"),
        ("rule", "--all"),
        ("config",),
        ("--help",),
        ("lint", "--help"),
        ("--version",),
    ],
)
def test_a_closed_reader_is_not_an_error(arguments: tuple[str, ...], folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ran = process(*arguments, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_a_gate_fails_even_if_nobody_reads_its_notes(folder: Path) -> None:
    Path("run").mkdir()
    Path("run/rank0.json").write_bytes(Path("good.json").read_bytes())
    Path("run/rank1.json").symlink_to("nowhere")
    reading, writing = os.pipe()
    os.close(reading)
    failing = ("lint", "run", "--select", "all", "--fail-on", "info")
    shown = process(*failing, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    hidden = process(*failing, stdout=subprocess.DEVNULL, stderr=writing)
    os.close(writing)
    assert shown.stderr
    assert hidden.returncode == shown.returncode != 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize(
    "arguments", [("analyze", "good.json", "--select", "TRC"), ("rule", "--all"), ("query", "--tables")]
)
def test_a_full_disk_is_reported(arguments: tuple[str, ...], folder: Path) -> None:
    with open("/dev/full", "wb") as full:
        ran = process(*arguments, stdout=full, stderr=subprocess.PIPE)
    said = b"habana_perf_tool: cannot write the output: no space is left on the device\n"
    assert (ran.returncode, ran.stderr) == (2, said)


_MAIN = "from perftool.cli import main; main()"


@pytest.mark.skipif(sys.platform != "linux", reason="needs resource limits")
@pytest.mark.parametrize("output", ["-o=drawn.json", "o.duckdb", "o.xlsx", "o/"])
def test_a_file_size_limit_is_reported(output: str, folder: Path) -> None:
    command = (
        ("annotate", "good.json", "--select", "TRC", "-o", "drawn.json")
        if "=" in output
        else ("export", "good.json", "-o", output)
    )
    limited = f"import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200)); {_MAIN}"
    # With -B, Python caches no bytecode. The limit would truncate the cached files to 200 bytes, and later processes
    # would fail.
    ran = subprocess.run([sys.executable, "-B", "-c", limited, *command], cwd=folder, capture_output=True, text=True)
    assert ran.returncode == 2
    assert (ran.stderr.count("\n"), "cannot write" in ran.stderr, "internal" in ran.stderr) == (1, True, False)


@pytest.mark.skipif(sys.platform != "linux", reason="a working directory can be removed")
def test_a_removed_working_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    removed = f"import os; os.chdir(r'{tmp_path}/gone'); os.rmdir(r'{tmp_path}/gone'); {_MAIN}"
    ran = subprocess.run([sys.executable, "-c", removed, "rule", "--all"], capture_output=True, text=True)
    said = "the working directory cannot be read (No such file or directory); change to another directory\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", f"habana_perf_tool: {said}")


def test_a_file_instead_of_a_command_gets_a_hint(cli) -> None:
    ran = cli("good.json")
    said = "habana_perf_tool: good.json is not a command; to analyse it: habana_perf_tool analyze good.json\n"
    assert (ran.code, ran.out, ran.err) == (2, "", said)


def test_a_report_fits_an_ascii_stdout(folder: Path) -> None:
    (folder / "long.json").write_bytes(document([step(1, 0, 1000), x("aten::" + "\u00e9" * 80, 10, 30)]))

    done = subprocess.run(
        [sys.executable, "-m", "perftool", "analyze", "long.json", "--select", "TRC", "--full"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "aten::\\xe9" in done.stdout


def test_an_option_before_the_command_is_refused_if_it_has_no_effect(cli) -> None:
    for option, *value in (("--quiet",), ("-o", "report.txt"), ("--color", "always"), ("--output-format", "json")):
        ran = cli(option, *value, "lint", "good.json")
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.endswith(" belongs after the command: lint ... " + ran.err.split()[-1] + "\n")


def test_the_format_of_the_environment_may_be_one_that_only_the_command_has(cli, monkeypatch) -> None:
    monkeypatch.setenv("HABANA_PERF_TOOL_OUTPUT_FORMAT", "sarif")
    assert json.loads(cli("lint", "good.json").out)["version"] == "2.1.0"
    refused = "habana_perf_tool: --output-format 'sarif': expected one of text, json, openmetrics\n"
    assert cli("--trace", "good.json") == Ran(2, "", refused)


@pytest.mark.parametrize("command", [(), *COMMANDS])
def test_the_help_does_not_break_examples_and_names_at_80_columns(command: tuple[str, ...], cli, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = cli(*command, "--help").out
    examples = [line.strip() for line in shown.split("Examples:")[1].split("╭")[0].splitlines() if line.strip()]
    assert [line for line in examples if "habana_perf_tool " not in line] == []
    assert "…" not in shown
    assert {line.split()[1] for line in shown.splitlines() if "<bool>" in line} <= {
        "--help", "--install-completion", "--show-completion",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["--output-file=package.json", "--baseline=all.json", "-q"])
def test_the_name_of_a_file_is_never_an_option(name: str, tmp_path: Path) -> None:
    """pre-commit and shells pass file names as arguments, which could be parsed as options."""
    (tmp_path / name).write_text('{"traceEvents": []}')
    (tmp_path / "package.json").write_text("precious")

    ran = process("lint", "--allow-empty", name, cwd=tmp_path, capture_output=True)

    assert (ran.returncode, ran.stdout) == (2, b"")
    assert f"{name!r} is both an option and a file here" in ran.stderr.decode()
    assert (tmp_path / "package.json").read_text() == "precious"


@pytest.fixture
def hook() -> list[str]:
    """The arguments with which pre-commit calls the program, without the names of files."""
    hooks = pytest.importorskip("yaml").safe_load((Path(__file__).parents[1] / ".pre-commit-hooks.yaml").read_text())
    return [*hooks[0]["entry"].split()[1:], *hooks[0]["args"]]


def test_pre_commit_fails_for_a_trace_in_which_nothing_is_checked(hook: list[str], tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text('{"traceEvents": []}')
    ran = process(*hook, "trace.json", cwd=tmp_path, capture_output=True)
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert b"trace.json: the trace has no event with a duration" in ran.stderr


def test_pre_commit_passes_names_after_the_end_of_the_options(hook: list[str], tmp_path: Path) -> None:
    (tmp_path / "--output-file=package.json").write_text("no trace")
    (tmp_path / "package.json").write_text("precious")

    ran = process(*hook, "--output-file=package.json", cwd=tmp_path, capture_output=True)

    assert b"--output-file=package.json: not JSON" in ran.stderr
    assert (tmp_path / "package.json").read_text() == "precious"
