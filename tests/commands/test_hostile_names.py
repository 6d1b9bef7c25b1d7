"""No text from a trace, a log, a configuration or a rule pack may control a terminal or give commands to a CI system.
Checks every output of every command on a trace in which every name tries to do that.
"""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import pytest
from builders.program import Run
from events import document, instant, kernel, launch, loader, meta, runtime, step, x

import perftool
from perftool.reporters.notebook import render_notebook

HOSTILE = (
    "x\x1b]0;owned\x07\x9b31m[/bold][link=file:///etc/passwd]\u202e\u2066\u200f\n::error::owned\r::error::owned"
    " ##[error]owned ##vso[task.complete]##teamcity[a]\n\t ::add-mask::owned :smile:"
)
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_COMMAND = re.compile(r"^\s*::(?!(?:error|warning|notice) title=habana_perf_tool)|##\w*\[", re.MULTILINE)


def hostile_trace(scale: int = 1) -> bytes:
    events = [
        meta("process_name", HOSTILE), meta("thread_name", HOSTILE), meta("thread_name", HOSTILE, pid=0, tid=7),
        meta("process_labels", HOSTILE),
    ]  # fmt: skip
    for number in range(4):
        at = number * 10_000
        events += [step(number, at, 10_000), loader(at + 10, 3000, HOSTILE)]
        events += [x(f"{HOSTILE}.py(3): {HOSTILE}", at + 3010, 6000, "python_function", **{"Python id": number + 1})]
        events += [x("aten::item", at + 3020 + 800 * k, 500 * scale) for k in range(6)]
        events += [x(f"nn.Module: {HOSTILE} | `</script>_{k}", at + 8490, 20, "python_function") for k in (0, 1)]
        events += launch(number * 10 + 1, at + 8500, 5, at + 8520, 400 * scale, HOSTILE)
        held = {"Device Type": 1, "Device Id": 0, "Addr": 1, "Bytes": 1 << 20, "Total Allocated": 1 << 20}
        events += [x(f"{HOSTILE} |", at + 8491, 3), instant("[memory]", at + 8492, **held)]
        events += [runtime(HOSTILE, at + 9000, 100), kernel(f"nccl {HOSTILE}", at + 9400, 300)]
    device = {"id": 0, "name": HOSTILE, "totalGlobalMem": 8 << 30}
    info = {"rank": 0, "world_size": 2, "backend": HOSTILE}
    return document(events, deviceProperties=[device], distributedInfo=info, hostname=HOSTILE, interrupted=HOSTILE)


def pack(folder: Path) -> Path:
    """Write a third-party rule in which every string is hostile."""
    folder.mkdir()
    text = json.dumps(HOSTILE)
    (folder / "ACM901.toml").write_text(f"""
code = "ACM901"\nname = "slow"\nsummary = {text}\nseverity = "error"\nconfidence = "low"\nstatus = "stable"
since = "0.1"\ndevices = "any"\nneeds = ["ops"]\n[params.least]\nvalue = 1\nunit = {text}\nwhy = {text}
[find]\nsql = "SELECT name AS subject, count(*) AS n, min(ts) AS ts FROM ops GROUP BY ALL HAVING count(*) >= $least"
[text]\nmessage = {text}\nwhy = {text}\nfix = {text}\nshort_fix = {text}\nexample = {text}\nreferences = [{text}]
""")
    return folder


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "a.json").write_bytes(hostile_trace())
    (tmp_path / "b.json").write_bytes(hostile_trace(2))
    (tmp_path / "named ##[error]x\x1b[31m.json").write_bytes(hostile_trace())
    (tmp_path / "console.log").write_text(f"CPU fallback {HOSTILE}\n[INFO] {HOSTILE}\n")
    (tmp_path / "bad.toml").write_text(f"{json.dumps(HOSTILE)} = 1\n")
    (tmp_path / "worse.toml").write_text(f"select = [{json.dumps(HOSTILE)}]\n")
    (tmp_path / "baseline.json").write_text(json.dumps({"version": HOSTILE}))
    (tmp_path / "damaged.json").write_text('{"traceEvents": [{"ph": "X", "name": "' + HOSTILE)
    pack(tmp_path / "pack")
    return tmp_path


FORMATS = [
    ("analyze", ("text", "json", "openmetrics")), ("lint", ("text", "json", "json-lines", "sarif", "junit", "gitlab")),
    ("diff", ("text", "json", "markdown")), ("query", ("table", "csv", "json")), ("whatif", ("text", "json")),
    ("rule", ("text", "json", "markdown")),
]  # fmt: skip
ARGUMENTS = {
    "analyze": ("a.json", "--log", "console.log"),
    "lint": ("a.json", "b.json", "--as-one-run", "--rules", "pack", "--select", "ACM,GAP", "--budget", "steps<=1000"),
    "diff": ("a.json", "b.json"), "query": ("a.json", "SELECT * FROM slices"), "whatif": ("a.json", "--fix", "SYN101"),
    "rule": ("ACM901", "--rules", "pack"),
}  # fmt: skip
CASES = [
    *((name, *ARGUMENTS[name], "--output-format", form) for name, forms in FORMATS for form in forms),
    ("lint", "a.json", "--rules", "pack", "--output-format", "github"),
    ("analyze", "a.json", "--log", "console.log", "--full"), ("analyze", "a.json", "b.json", "--each"),
    ("analyze", "named ##[error]x\x1b[31m.json", "--select", "TRC", "--full"), ("analyze", "damaged.json", "--full"),
    ("analyze", "a.json", "b.json"), ("lint", "a.json", "--statistics", "--rules", "pack"),
    ("lint", "a.json", "--config", "bad.toml"), ("lint", "a.json", "--config", "worse.toml"),
    ("lint", "a.json", "--baseline", "baseline.json"), ("lint", "a.json", "--config", f"{HOSTILE} = 1"),
    ("lint", "a.json", "--select", HOSTILE), ("lint", "a.json", "--budget", f"{HOSTILE} <= 1"),
    ("query", "a.json", f'SELECT "{HOSTILE}" FROM ops'), ("query", "a.json", f"SELECT 1 AS \"{HOSTILE}\""),
    ("query", "a.json", "SELECT error(name) FROM slices"), ("rule", "--all", "--rules", "pack"),
    ("rule", "--check", "pack"), ("rule", HOSTILE), (HOSTILE,), ("lint", f"--{HOSTILE}"), ("analyze", HOSTILE),
    ("lint", "a.json", "--also", HOSTILE), ("annotate", "a.json", "-o", "a.out.json"),
    ("annotate", "a.json", "b.json", "-o", "both.json"), ("diff", "a.json", "b.json", "--output-format", "markdown"),
    ("report", "a.json", "--log", "console.log", "-o", "r.html"),
    ("analyze", "a.json", "--select", "TRC", "--part", f"{HOSTILE}.part"),
    ("benchmark", HOSTILE), ("config", HOSTILE),
]  # fmt: skip


@pytest.mark.parametrize("arguments", CASES, ids=lambda case: " ".join(map(ascii, case))[:60])
def test_no_output_contains_terminal_or_ci_commands(arguments: tuple[str, ...], here: Path, run: Run) -> None:
    run(*arguments)
    for text in (run.out, run.err):
        assert "Traceback" not in text
        assert "internal error" not in text
        assert not _CONTROL.findall(text)
        assert not _COMMAND.findall(text)


def test_json_says_the_same_on_stdout_and_in_a_file(here: Path, run: Run) -> None:
    run("query", "a.json", "SELECT name FROM slices", "--output-format", "json")
    printed = json.loads(run.out)
    run("query", "a.json", "SELECT name FROM slices", "--output-format", "json", "-o", "rows.json")
    assert printed == json.loads(Path("rows.json").read_bytes())
    assert any(row["name"] == HOSTILE for row in printed)


def test_history_of_a_hostile_run(here: Path, run: Run) -> None:
    for _ in range(3):
        run("analyze", "a.json", "--summary-jsonl", "runs.jsonl")
    for form in ("text", "json"):
        run("trend", "runs.jsonl", "--output-format", form)
        assert not _CONTROL.findall(run.out + run.err)
        assert not _COMMAND.findall(run.out + run.err)


def test_every_format_of_every_command_is_checked() -> None:
    from perftool.commands import query, rule
    from perftool.model.choices import LintFormat, ReportFormat

    looked_at = {name: set(forms) for name, forms in FORMATS}
    looked_at["lint"].add("github")
    assert looked_at["lint"] == {form.value for form in LintFormat}
    assert looked_at["analyze"] == {form.value for form in ReportFormat}
    assert looked_at["query"] == {form.value for form in query.Format}
    assert looked_at["rule"] == {form.value for form in rule.Format}


def _busy_trace() -> bytes:
    """Return a trace of a busy CPU. Its verdict names the largest op and two annotations, and says where the loader
    spends its time.
    """
    name, events = "q\nforged \u202e", []
    for number in range(4):
        at = 10_000 * number
        events += [step(number, at, 10_000), loader(at + 10, 2000)]
        events += [x(f"aten::{name}", at + 20 + 200 * turn, 190) for turn in range(9)]
        for part in range(2):
            begin = at + 2100 + 3900 * part
            events += [x(f"{name} {part}", begin, 3800, "user_annotation"), x(f"aten::{name}", begin + 10, 3780)]
    return document(events)


def test_a_line_feed_in_a_name_begins_no_line(tmp_path: Path, run: Run) -> None:
    (tmp_path / "t.json").write_bytes(_busy_trace())
    device = [{"id": 0, "name": "q\nforged"}]
    (tmp_path / "u.json").write_bytes(document([step(1, 0, 99), *launch(1, 1, 5, 9, 40, "k")], deviceProperties=device))
    for command in (
        ("analyze", "t.json"),
        ("analyze", "t.json", "--full"),
        ("lint", "t.json"),
        ("diff", "t.json", "u.json"),
    ):
        run(*command)
        assert "forged" in run.out
        assert not re.findall(r"^\s*forged", run.out + run.err, re.MULTILINE)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "t.json").write_bytes(_busy_trace())
    (folder / "x\nforged.json.md5").write_bytes(b"text")
    assert run("lint", "folder", "--select", "TRC109") == 0
    assert run.err.count("forged") == 1
    assert not re.findall(r"^\s*forged", run.err, re.MULTILINE)
    # A trace that is a broken link does not pass a gate.
    (folder / "l\nforged.json").symlink_to("nowhere")
    assert run("lint", "folder", "--select", "TRC109") == 2
    assert run.err.count("forged") == 1
    assert not re.findall(r"^\s*forged", run.err, re.MULTILINE)
    shown = render_notebook(perftool.analyze(tmp_path / "t.json"))
    assert "forged" in shown
    assert not _CONTROL.findall(shown)
    assert "\n" not in shown


HALF = "x\ud800"


def test_half_a_surrogate_pair_in_a_file_beside_a_trace_is_text(tmp_path: Path, run: Run) -> None:
    """Neither tables nor reports can contain half a surrogate pair, although JSON and pickles can."""
    statistics = {"TotalNumber": 1, "TotalTime": 5, "AvgTime": 5.0, "recipe": [[HALF, 5]]}
    record = {"metric_name": "graph_compilation", "triggered_by": HALF, "statistics": statistics}
    printed = (
        f"Metric name: graph_compilation\nTriggered by: x\nStatistics:\n\tTotalNumber: 1\n\trecipe: {[(HALF, 5)]}\n"
    )
    entry = {"frames": [{"name": HALF, "filename": HALF, "line": 3}], "pg_id": 0, "process_group": ("0", HALF)}
    entry |= {"collective_seq_id": 1, "op_id": 1, "profiling_name": HALF, "state": HALF, "input_sizes": [[3]]}
    groups = {"0": {"name": "0", "desc": HALF, "ranks": "[0, 1]"}}
    content = {
        "ds_config.json": json.dumps({"train_batch_size": 1, "optimizer": {"type": HALF, HALF: [HALF]}}).encode(),
        "metrics-rank0.json": json.dumps([record]).encode(),
        "metrics-rank1.txt": printed.encode(),
        "nccl_trace_rank_0": pickle.dumps({"version": "2.10", "pg_config": groups, "entries": [entry]}, protocol=2),
    }
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.json").write_bytes(document([x(f"op {rank}", 0, 10)]))
    assert run("analyze", ".", "--full") == 0
    assert run("query", ".", "SELECT path, status FROM inputs ORDER BY path", "--output-format", "json") == 0
    assert [one["path"] for one in json.loads(run.out)] == sorted([*content, "rank0.json", "rank1.json"])
    assert {one["status"] for one in json.loads(run.out)} == {"ok"}
