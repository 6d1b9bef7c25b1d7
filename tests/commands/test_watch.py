"""``analyze --watch`` prints a line for each trace in a folder once the trace is finished. The tests do not pause
between scans.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from builders.program import Run
from events import document, step, x

from perftool.commands import each
from perftool.commands.options import CliSettings
from perftool.commands.session import Session
from perftool.engine.ranks.schedule import IN_PROCESS
from perftool.model.choices import Color
from perftool.readers.metrics.run_lines import read_done, read_history

TRACE = document([step(1, 0, 1000), x("aten::mm", 10, 30)])
Change = Callable[[], object]


def write(name: str, content: bytes = TRACE, at: int = 1) -> None:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_bytes(content)
    os.utime(name, ns=(at, at))


def watched(*changes: Change, summaries: str | None = None, quiet: bool = True) -> None:
    """Watch ``box``, apply one of ``changes`` after each scan until they are used up, then press Ctrl-C."""
    left = list(changes)

    def wait(seconds: float) -> None:
        assert seconds == 7
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()

    given = {"select": ["TRC"], "exclude": ["no*"]}
    cli = CliSettings(isolated=True, color=Color.never, quiet=quiet, summary_jsonl=summaries, keys=given)
    with pytest.raises(KeyboardInterrupt):
        each.watch("box", Session(cli, ["box"]), 7, schedule=IN_PROCESS, wait=wait)


def nothing() -> None:
    """Change nothing."""


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [" ".join(line.split()[:2]) for line in capsys.readouterr().out.splitlines()]


def test_each_trace_has_a_line_once_it_is_finished(capsys: pytest.CaptureFixture[str]) -> None:
    write("box/a.json")
    write("box/no.json")
    write("box/settings.json", b'{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}}')
    watched(
        lambda: write("box/b.json", TRACE[:50], 2),
        lambda: write("box/b.json", TRACE, 3),
        lambda: write("box/node1/rank1.json", TRACE, 4),
        lambda: os.unlink("box/a.json"),
        nothing,
        lambda: write("box/b.json", TRACE, 9),
        nothing,
    )
    assert lines(capsys) == [
        "a.json cpu", "b.json cpu", "node1/rank1.json cpu", "b.json cpu",
    ]  # fmt: skip


def test_a_note_names_once_what_may_be_a_trace_and_is_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    write("box/a.json")
    write("box/b.json.xz")
    write("elsewhere/c.json")
    Path("box/job").symlink_to("../elsewhere")
    Path("box/d.json").symlink_to("nowhere")
    os.mkfifo("box/e.json")
    watched(nothing, nothing, lambda: write("box/b.json", at=2), nothing, quiet=False)
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()] == ["a.json", "b.json"]
    assert said.err.splitlines() == [
        "box/job is a link to another folder and was not read (name that folder, too)",
        "box/d.json is a broken link, and was not read",
        "box/e.json is a special file (such as a pipe) or a link to an empty file, and was not read",
        "box/b.json.xz was not read: the names of traces end with .json, .json.gz or .json.zst",
    ]


def test_a_name_like_a_pattern_is_the_name_of_one_trace(capsys: pytest.CaptureFixture[str]) -> None:
    write("box/h.json")
    write("box/[h].json", TRACE + b" ")
    watched(nothing, nothing)
    assert sorted(lines(capsys)) == ["[h].json cpu", "h.json cpu"]


def test_no_other_file_takes_the_place_of_a_trace(run: Run) -> None:
    """The name of the second file is the name of the first, escaped as a pattern."""
    names = ["a[1].json", "a[[]1].json"]
    for name in names:
        write(f"box/{name}", TRACE + b" " * len(name))
    watched(nothing, summaries="n.jsonl")
    assert sorted(line.name for line in read_history("n.jsonl").lines) == sorted(names)
    assert run("analyze", "--each", "--select", "TRC", *(f"box/{name}" for name in names)) == 0
    assert [line.split()[0] for line in run.out.splitlines()[-2:]] == [f"box/{name}" for name in names]


def test_an_unreadable_trace_only_loses_its_own_line(capsys: pytest.CaptureFixture[str]) -> None:
    write("box/bad.json", b"no trace")
    write("box/a.json", at=2)
    watched(lambda: os.rename("box", "away"), lambda: os.rename("away", "box"), nothing)
    assert lines(capsys) == ["bad.json not", "a.json cpu"]


def test_an_unreadable_trace_is_a_run_that_trend_does_not_judge(run: Run) -> None:
    write("box/a.json")
    write("box/b.json", b"no trace", at=2)
    watched(nothing, summaries="n.jsonl")
    assert [(line.name, line.lost) for line in read_history("n.jsonl").lines] == [("a.json", 0), ("b.json", 1)]
    assert [state.path for state in read_done("n.jsonl")] == ["a.json"]
    assert run("trend", "n.jsonl") == 2
    assert "the newest run (b.json) is incomplete, so it is not judged" in run.err + run.out


def test_the_summary_file_lists_finished_traces(capsys: pytest.CaptureFixture[str]) -> None:
    write("box/a.json")
    watched(nothing, summaries="n.jsonl")
    write("box/b.json", at=2)
    watched(nothing, summaries="n.jsonl")
    write("box/a.json", at=3)
    watched(nothing, summaries="n.jsonl")

    assert lines(capsys) == ["a.json cpu", "b.json cpu", "a.json cpu"]
    assert [(state.path, state.changed_ns) for state in read_done("n.jsonl")] == [
        ("a.json", 1),
        ("b.json", 2),
        ("a.json", 3),
    ]
    assert [line.name for line in read_history("n.jsonl").lines] == ["a.json", "b.json", "a.json"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has names of any bytes")
def test_a_trace_whose_name_is_not_utf_8_is_read_once(capsys: pytest.CaptureFixture[str]) -> None:
    name = os.fsdecode(b"\xff.json")
    write(f"box/{name}")
    watched(nothing, summaries="n.jsonl")
    # The summary escapes the name above, so that it looks like this name.
    write("box/\\xff.json")
    for _ in range(2):
        watched(nothing, summaries="n.jsonl")
    assert lines(capsys) == ["\\xff.json cpu"] * 2
    assert [state.path for state in read_done("n.jsonl")] == [name, "\\xff.json"]


@pytest.mark.parametrize(
    "file",
    [
        7,
        {},
        {"path": "a", "bytes": True, "changed_ns": 1},
        {"path": 1, "bytes": 1, "changed_ns": 1},
        {"path": "a", "bytes": 1, "changed_ns": 1, "path_hex": "x"},
    ],
)
def test_other_lines_are_ignored(file: object) -> None:
    Path("n.jsonl").write_text(json.dumps({"file": file}) + "\n[]\n{")
    assert read_done("n.jsonl") == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--watch", "nowhere"], "nowhere: not a folder, so there is nothing to watch"),
        (["run.json", "--watch", "."], "--watch DIR prints a line for each trace in DIR: leave out"),
        (["--watch", ".", "--each"], "--watch DIR prints a line for each trace in DIR: leave out"),
        (
            ["--watch", ".", "-o", "lines.txt"],
            "--watch prints lines while it runs, so it cannot be combined with --output-file",
        ),
        (["--watch", ".", "--output-format", "json"], "--watch reads only traces and prints only text"),
        (["--watch", ".", "--summary-jsonl", "run.json"], "run.json: contains lines other than"),
    ],
)
def test_options_that_watch_does_not_allow_are_refused(arguments: list[str], says: str, run: Run) -> None:
    write("./run.json")
    assert run("analyze", *arguments) == 2
    assert says in run.err
