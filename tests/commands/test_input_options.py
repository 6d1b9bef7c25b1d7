"""Every command that reads runs honours all input options, both on the command line and in a configuration file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from builders.program import Run
from events import document, step, x

from perftool.commands.options import ROWS, with_options
from perftool.engine import analysis
from perftool.engine.compare import saved_report
from perftool.engine.ranks.schedule import Schedule
from perftool.engine.settings.table import FILES, RANKS, RUNS
from perftool.errors import PerfToolError
from perftool.model.rule import Rule
from perftool.readers.discover import Inputs

ARGUMENTS: dict[str, list[str]] = {
    "analyze": ["box"],
    "lint": ["box"],
    "report": ["box"],
    "annotate": ["box", "-o", "out.json"],
    "whatif": ["box"],
    "diff": ["saved.json", "box"],
    "query": ["box", "SELECT 1"],
    "export": ["box", "-o", "out.duckdb"],
}
OLD, NEW = "box/host_7.1000000000000.pt.trace.json", "box/host_7.1700000000000.pt.trace.json"
RULE = """
code = "USR901"
name = "never"
summary = "Never"
severity = "info"
confidence = "high"
status = "stable"
since = "0.1"
devices = "any"
[find]
sql = "SELECT 'x' AS subject WHERE false"
[text]
message = "never"
why = "To be found."
fix = "None."
example = "None"
references = []
"""
# For most input options, a value and a check that the program honours it. ELSEWHERE names the tests of the others.
CASES: dict[str, tuple[str, Any]] = {
    "log": ("console.log", lambda seen: seen.inputs.texts == ("console.log",)),
    "metrics": ("metrics.json", lambda seen: seen.inputs.texts == ("metrics.json",)),
    "capture": ("capture.json", lambda seen: seen.inputs.captures == ("capture.json",)),
    "device": ("MI300X", lambda seen: seen.inputs.device == "MI300X"),
    "exclude": ("*.1700000000000.*", lambda seen: seen.inputs.traces == (OLD,)),
    "run": ("host_7.1000000000000", lambda seen: seen.inputs.traces == (OLD,)),
    "rule_packs": ("pack", lambda seen: any(rule.code == "USR901" for rule in seen.rules)),
    "as_one_run": ("", lambda seen: seen.inputs.traces == (OLD, NEW)),
    "jobs": ("2", lambda seen: seen.schedule.workers == 2),
}
ELSEWHERE = {"source_roots": "test_sources", "part": "test_parts", "scheduler": "test_cluster"}


class Seen(PerfToolError):
    """Raised in place of an analysis, with what the command requested."""

    def __init__(self, inputs: Inputs, rules: tuple[Rule, ...], schedule: Schedule) -> None:
        super().__init__("seen")
        self.inputs, self.rules, self.schedule = inputs, rules, schedule


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, _outside: None) -> list[Seen]:
    """The requests that commands make in a folder with two runs."""
    found: list[Seen] = []

    @contextmanager
    def analysed(inputs: Inputs, rules: Any = (), schedule: Any = None, progress: Any = None) -> Iterator[None]:
        found.append(Seen(inputs, tuple(rules), schedule))
        raise found[-1]
        yield

    monkeypatch.setattr(analysis, "analysed", analysed)
    # Treat saved.json as a saved report to compare with.
    monkeypatch.setattr(saved_report, "read_saved", lambda path: object() if path == "saved.json" else None)
    for folder in ("box", "pack"):
        Path(folder).mkdir()
    Path("pack/USR901.toml").write_text(RULE)
    for at, name in enumerate((OLD, NEW)):
        Path(name).write_bytes(document([step(1, 0, 1000), x("aten::mm", 10 + at, 30)]))
    for name in ("console.log", "metrics.json", "capture.json"):
        Path(name).write_text("{}")
    return found


def written(name: str, value: str) -> str:
    """Return the line of a configuration file that sets the option ``name`` to ``value``."""
    made = next(one for one in ROWS if one.name == name)
    if made.type == "list of strings":
        return f"{made.key} = {json.dumps([value])}"
    return f"{made.key} = {value or 'true'}" if made.kind in ("bool", "int | None") else f'{made.key} = "{value}"'


@pytest.mark.parametrize("where", ["option", "configuration"])
@pytest.mark.parametrize(
    ("command", "name"), [(command, name) for name in CASES for command in RUNS], ids=lambda part: str(part)
)
def test_every_command_honours_every_input_option(
    command: str, name: str, where: str, run: Run, asked: list[Seen]
) -> None:
    value, honoured = CASES[name]
    made = next(one for one in ROWS if one.name == name)
    extra = (
        ["--as-one-run"]
        if name == "jobs"
        else ["--fix", "USR901"]
        if (command, name) == ("whatif", "rule_packs")
        else []
    )
    if command == "lint" and name not in ("run", "as_one_run", "exclude", "jobs"):
        # A gate does not choose one of two runs.
        extra += ["--run", "newest"]
    if where == "configuration":
        Path("habana_perf_tool.toml").write_text(written(name, value))
        extra += ["--trust-config"]
    elif command in made.on:
        extra += [made.flag, *([value] if value else [])]
    assert run(command, *ARGUMENTS[command], *extra) == 2
    if command not in made.on:
        # `diff` compares two runs, so it ignores settings that are for one run and warns about them.
        assert (
            where == "option"
            or command != "diff"
            or f"ignores these settings, which apply to a single run: {made.key}" in run.err
        )
    elif (command, name) == ("whatif", "rule_packs"):
        assert "there is no rule" not in run.err
    else:
        assert honoured(asked[0]), run.err


def test_no_input_option_is_left_out() -> None:
    rows = {one.name for one in ROWS if one.panel in (FILES, RANKS) and set(one.on) & set(RUNS)}
    assert rows - set(ELSEWHERE) == set(CASES) - {"rule_packs"}
    assert set(ARGUMENTS) == set(RUNS)


@pytest.mark.parametrize(
    ("options", "traces"),
    [(["--run", "host_7.1000000000000"], (OLD,)), ([], (OLD, NEW)), (["--as-one-run"], (OLD, NEW))],
)
def test_the_command_line_chooses_between_one_run_and_all(
    options: list[str], traces: tuple[str, ...], run: Run, asked: list[Seen]
) -> None:
    Path("habana_perf_tool.toml").write_text("as-one-run = true" if "--run" in options or not options else 'run = "x"')
    run("analyze", "box", *options)
    assert asked[0].inputs.traces == traces
    assert run("analyze", "box", "--run", "host_7", "--as-one-run") == 2
    assert "--run and --as-one-run exclude each other" in run.err


def test_a_found_configuration_starts_no_processes(run: Run, asked: list[Seen]) -> None:
    Path("habana_perf_tool.toml").write_text("jobs = 2")
    assert run("analyze", "box") == 2
    assert "key jobs: a discovered configuration may not start processes" in run.err
    assert asked == []


def test_patterns_follow_no_link_out_of_the_folder(run: Run, asked: list[Seen]) -> None:
    Path("box/inside").symlink_to(Path.cwd())
    Path("box/habana_perf_tool.toml").write_text('log = ["ins*/console.log"]')
    assert run("analyze", "box") == 2
    assert "key log: a discovered configuration may only name files in its own folder" in run.err
    assert asked == []


def test_a_command_without_shared_options_is_left_as_it_is() -> None:
    def own(path: str) -> None:
        """Stand in for a command that has no options."""

    assert with_options("analyze", own) is own
