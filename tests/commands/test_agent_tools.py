"""The tools for agents: their answers and limits."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from glob import glob
from pathlib import Path
from typing import Any

import pytest
from events import document, step, x

import perftool
from perftool.commands import agent_tools
from perftool.commands.agent_tools import Workspace, end, explained, listed, small
from perftool.errors import PerfToolError, RuleError
from perftool.readers.discover import find_inputs
from perftool.readers.files.walk import DEEPEST
from perftool.reporters.escape import shown, shown_document

SAMPLES = Path(__file__).parents[2] / "sample_traces"
TRACE = document([step(1, 0, 1000), x("aten::mm", 10, 30)])


GUIDE = (SAMPLES.parent / "docs" / "agents.md").read_text(encoding="utf-8")
# The calls that the guide shows, and the beginnings of their answers.
SHOWN = re.findall(r"^(\w+) (\{.*\})\n→ ((?:.+\n)+?)(?=\w|```)", GUIDE, re.MULTILINE)


@pytest.fixture(scope="module")
def answers() -> list[Any]:
    """The answers of one server to the calls of ``SHOWN``, and to six other calls."""
    pytest.importorskip("mcp")

    async def talk(call: Callable[[str, dict[str, Any]], Awaitable[Any]]) -> list[Any]:
        sql = "SELECT count(*) AS steps FROM steps"
        return [
            *[await call(tool, json.loads(arguments)) for tool, arguments, _ in SHOWN],
            await call("query", {"path": "gaudi2_optimised", "sql": sql}),
            await call("query", {"path": "gaudi2_optimised", "sql": "SELECT * FROM op"}),
            await call("query", {"path": "gaudi2_unoptimised", "sql": "SELECT * FROM ops"}),
            await call("explain_rule", {"code": "SYN101"}),
            await call("analyze", {"path": "../pyproject.toml"}),
            await call("list_runs", {"folder": "\0"}),
        ]

    found: list[Any] = asyncio.run(conversation(talk))
    return found


def test_a_client_gets_answers_and_reasons_for_refusals(answers: list[Any]) -> None:
    rows, unknown, long, rule, refused, impossible = answers[-6:]

    assert rows.structured_content == {"data": {"rows": [{"steps": 3}], "rows_left_out": 0}}
    assert unknown.content[0].text.endswith("query: there is no table 'op'; did you mean ops?")
    assert json.loads(long.content[0].text) == long.structured_content
    assert len(long.content[0].text) <= 40_000
    assert rule.structured_content["data"]["code"] == "SYN101"
    assert refused.is_error
    assert "outside the folder that this server may read" in refused.content[0].text
    assert "null byte" in impossible.content[0].text


async def conversation(talk: Callable[[Callable[[str, dict[str, Any]], Awaitable[Any]]], Awaitable[Any]]) -> Any:
    """Start a server for the samples, and return the result of ``talk``, which is given a function that calls the
    server's tools.
    """
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    command = ["-m", "perftool", "mcp", "--root", str(SAMPLES)]
    async with (
        stdio_client(StdioServerParameters(command=sys.executable, args=command)) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        return await talk(session.call_tool)


def test_an_analysis_is_trimmed_to_the_requested_findings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = {"code": "A", "advice": True, "message": "m", "evidence": {"large": 1}}
    about = {**found, "advice": False, "message": "damaged"}
    numbers = {"a": {"value": 1}, "b": {"value": None}}
    inputs = [{"kind": kind, "path": f"{tmp_path}/run/rank0.{kind}"} for kind in ("trace", "log")]
    findings = [found, found, about]
    omitted = [f"{tmp_path}/run/rank1.json.xz: not read"]
    report = {
        "verdict": {"headline": "h"}, "summary": numbers, "findings": findings, "inputs": inputs, "omitted": omitted,
    }  # fmt: skip
    monkeypatch.setattr(agent_tools.Workspace, "run", lambda *_: report)

    data = agent_tools.analyzed(Workspace(tmp_path, 1), ".", 1)["data"]

    assert [one["code"] for one in data["findings"]] == ["A"]
    assert "evidence" not in data["findings"][0]
    assert (data["findings_left_out"], data["about_the_trace"], data["summary"]) == (
        1,
        ["run/rank1.json.xz: not read", "damaged"],
        {"a": {"value": 1}},
    )
    assert data["traces"] == [os.path.join("run", "rank0.trace")]


@pytest.mark.parametrize(
    "name", ["..", "../outside.json", "/etc/passwd", "missing.json", "link.json", "http://a/b.json"]
)
def test_nothing_outside_the_root_is_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "outside.json").write_text("{}")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link.json").symlink_to(tmp_path / "outside.json")

    with pytest.raises(PerfToolError, match=r"outside the folder|no such file|link out"):
        Workspace(root, 1).path(name)


def test_a_folder_named_like_a_pattern_stands_for_itself(tmp_path: Path) -> None:
    (tmp_path / "a*").mkdir()
    (tmp_path / "ab").mkdir()
    for folder in ("a*", "ab"):
        (tmp_path / folder / "run.json").write_text("{}")

    assert glob(Workspace(tmp_path, 1).path("a*/run.json")) == [str(tmp_path / "a*" / "run.json")]
    assert find_inputs([Workspace(tmp_path, 1).path("a*")]).traces == (str(tmp_path / "a*" / "run.json"),)


def test_a_link_named_like_an_escaped_folder_leads_nowhere(tmp_path: Path) -> None:
    """An analysis of ``a*`` used to read the target of the link ``a[*]``."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / "a*", outside):
        folder.mkdir(parents=True)
        (folder / "run.json").write_text("{}")
    (root / "a[*]").symlink_to(outside)

    assert find_inputs([Workspace(root, 1).path("a*")]).traces == (str(root / "a*" / "run.json"),)
    with pytest.raises(PerfToolError, match=r"^a\*/run\.json: a\[\*\]/run\.json also exists; rename one of them$"):
        Workspace(root, 1).path("a*/run.json")


def test_a_folder_with_a_link_out_of_the_root_is_refused(tmp_path: Path) -> None:
    (tmp_path / "root" / "run").mkdir(parents=True)
    (tmp_path / "root" / "run" / "log.txt").symlink_to("/etc/hostname")

    with pytest.raises(PerfToolError, match=r"log.txt: a link that leads outside the folder"):
        Workspace(tmp_path / "root", 1).path("run")


def test_a_command_that_fails_or_takes_too_long_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("no trace")

    with pytest.raises(PerfToolError, match=r"a\.json: "):
        Workspace(tmp_path, 60).run("analyze", ["--output-format", "json"], [str(tmp_path / "a.json")])
    with pytest.raises(PerfToolError, match=r"analyze took longer than 0\.01 s"):
        Workspace(tmp_path, 0.01).run("analyze", [], [str(tmp_path)])


def test_neither_a_configuration_nor_the_environment_changes_what_a_tool_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "run.json").write_bytes(TRACE)
    (tmp_path / ".habana_perf_tool.toml").write_text('ignore = ["ALL"]')
    monkeypatch.setenv("HABANA_PERF_TOOL_OUTPUT_FILE", str(tmp_path / "written"))

    assert Workspace(tmp_path, 60).run("analyze", ["--output-format", "json"], [str(tmp_path)])["verdict"]
    assert not (tmp_path / "written").exists()


def test_an_endless_answer_is_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(agent_tools, "_LONGEST_ANSWER", 100)
    (tmp_path / "run.json").write_bytes(TRACE)
    with pytest.raises(PerfToolError, match=r"the answer is larger than 0 MiB; request less, for example with LIMIT"):
        Workspace(tmp_path, 60).run("query", ["--output-format", "json"], [str(tmp_path), "SELECT * FROM raw"])


def test_a_call_ends_when_its_client_cancels_it(tmp_path: Path) -> None:
    looks = iter([None])

    def wanted() -> None:
        if next(looks, "left") == "left":
            raise ConnectionError

    desk = Workspace(tmp_path, 60, wanted)
    with pytest.raises(ConnectionError):
        desk.run("analyze", [], [str(tmp_path)])
    assert not desk.running


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_the_workers_of_a_call_end_with_it() -> None:
    read, write = os.pipe()
    sleeps = "import os, time; os.write(int(os.sys.argv[1]), b'.'); time.sleep(600)"
    starts = (
        f"import os, subprocess, sys; subprocess.run([sys.executable, '-c', {sleeps!r}, sys.argv[1]], close_fds=False)"
    )
    child = subprocess.Popen([sys.executable, "-c", starts, str(write)], pass_fds=[write], start_new_session=True)
    os.close(write)
    assert os.read(read, 1) == b"."

    end(child)

    # The pipe closes once the last process that has it open has ended.
    assert os.read(read, 1) == b""
    os.close(read)


def test_a_signal_ends_the_server_although_the_client_stays(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    command = [sys.executable, "-m", "perftool", "mcp", "--root", str(tmp_path)]
    hello = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        server.stdin.write(json.dumps(request).encode() + b"\n")
        server.stdin.flush()
        assert b'"result"' in server.stdout.readline()
        server.send_signal(signal.SIGTERM)
        try:
            assert server.wait(120) == 128 + signal.SIGTERM
        finally:
            server.kill()


def test_circular_links_and_deep_folders_hide_no_trace(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(b"1234")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "up").symlink_to(".")
    deepest = tmp_path.joinpath(*["a"] * DEEPEST)
    (deepest / "b").mkdir(parents=True)
    desk = Workspace(tmp_path, 1)
    assert (desk.path("."), desk.path("run.json")) == (str(tmp_path), f"{tmp_path}/run.json")
    with pytest.raises(PerfToolError, match=r"^loop: no such file or folder$"):
        desk.path("loop")
    assert listed(desk, ".")["data"] == {
        "files": [{"path": "run.json", "bytes": 4}],
        "files_left_out": 0,
        "notes": [f"{deepest}/b is more than {DEEPEST} folders deep, so nothing in it was read"],
    }


def test_an_unforeseen_error_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("mcp")

    def fail(*_: object) -> None:
        raise RecursionError("a" * 9999)

    monkeypatch.setattr(agent_tools, "listed", fail)
    with pytest.raises(Exception, match=r"internal error: RecursionError: a{2000}$") as caught:
        asyncio.run(agent_tools._server(Workspace(tmp_path, 1)).call_tool("list_runs", {}))
    assert "Traceback" not in repr(caught.value)


def test_the_newest_traces_come_first(tmp_path: Path) -> None:
    for at, name in enumerate(("old.json", "new.json.gz")):
        (tmp_path / name).write_bytes(b"1234")
        os.utime(tmp_path / name, (at, at))
    (tmp_path / "notes.md").write_text("no trace")

    assert [file["path"] for file in listed(Workspace(tmp_path, 1), ".")["data"]["files"]] == [
        "new.json.gz",
        "old.json",
    ]


def test_tables_are_listed_with_their_columns() -> None:
    assert "ts BIGINT" in explained("tables")["data"]["slices"]
    assert explained("gaps")["data"]["columns"]["dur"] == "BIGINT: duration in ns"


def test_the_error_about_an_unknown_rule_names_no_command_line_option() -> None:
    with pytest.raises(RuleError, match=r"^unknown rule 'SYN999'"):
        explained("SYN999")


def test_the_server_states_the_version_of_the_program() -> None:
    pytest.importorskip("mcp")

    assert agent_tools._server(Workspace(SAMPLES, 1)).version == perftool.__version__


def test_a_long_answer_is_cut_with_a_note() -> None:
    answer = small({"rows": [{"name": "x" * 100}] * 5_000, "few": [1, 2]})

    assert len(json.dumps(answer)) < 50_000
    assert answer["data"]["cut"] == "the answer was too long; request less"
    assert answer["data"]["few"] == [1, 2]
    assert len(json.dumps(small({"text": "x" * 100_000}))) < 50_000
    rows = small({"rows": [{"name": "x" * 100}] * 5_000, "rows_left_out": 7})["data"]
    assert len(rows["rows"]) + rows["rows_left_out"] == 5_007
    assert small({"rows": [{"name": "x" * 100_000}], "rows_left_out": 0})["data"]["rows_left_out"] == 1
    many = small({f"text {number}": "x" * 20_000 for number in range(6)})
    assert len(json.dumps(many)) < 50_000


def test_invisible_letters_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "a\U000e0041\x1b.json").write_text("{}")
    (tmp_path / os.fsdecode(b"b\xff.json")).write_text("{}")

    assert {file["path"] for file in listed(Workspace(tmp_path, 1), ".")["data"]["files"]} == {
        r"a\U000e0041\x1b.json",
        r"b\xff.json",
    }
    assert small({"rows": [{"\u202e": ["\u202e"]}]}) == {"data": {"rows": [{r"\u202e": [r"\u202e"]}]}}


HIDDEN = ["\U000e0100", "\U000e01ef", "\u200b", "\u2060", "\ufeff", "\u180e", "\u00ad", "\ufe01", "\u3164", "\u115f"]


@pytest.mark.parametrize("hidden", [*HIDDEN, "\u034f", "\u1160", "\uffa0", "\U000e0fff", "\ue000", "\u2064"])
def test_hidden_characters_are_never_shown_raw(hidden: str) -> None:
    escaped = hidden.encode("unicode_escape").decode()
    assert small({"rows": [f"aten::mm{hidden}"]}) == {"data": {"rows": [f"aten::mm{escaped}"]}}
    assert shown(f"é{hidden}\n≤ 名前\u00a0") == f"é{escaped}\n≤ 名前\u00a0"
    document = json.dumps({"é≤": hidden}, ensure_ascii=False).encode()
    assert hidden.encode() not in shown_document(document)
    assert json.loads(shown_document(document)) == {"é≤": hidden}


def test_a_pipe_is_refused_and_a_foreign_link_hides_no_runs(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "a.json").write_text("{}")
    (runs / "passwd").symlink_to("/etc/passwd")
    assert [file["path"] for file in listed(Workspace(runs, 1), ".")["data"]["files"]] == ["a.json"]
    with pytest.raises(PerfToolError, match="link that leads outside the folder"):
        Workspace(runs, 1).path(".")
    os.mkfifo(runs / "pipe.json")
    with pytest.raises(PerfToolError, match="not a file or folder"):
        Workspace(runs, 1).path("pipe.json")


def test_the_server_answers_as_the_guide_shows(answers: list[Any]) -> None:
    assert [tool for tool, *_ in SHOWN] == ["analyze", "whatif", "query"]
    for (_, _, text), answer in zip(SHOWN, answers, strict=False):
        given = json.dumps(answer.structured_content)
        parts = re.findall(r'"[^"]*"|\d[\d.]*', re.sub(r"\s+", " ", text))
        assert [part for part in parts if part not in given] == []
