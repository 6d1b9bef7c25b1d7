"""``lint`` as CI sees it: exit codes, streams and files. Runs in this process, on the samples and on tiny traces."""

from __future__ import annotations

import errno
import gzip
import json
import lzma
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from builders import gaudi_profiler
from builders.program import Run
from events import Event, document, step, x

from perftool.engine.gate.lint import LintPlan, lint_nothing
from perftool.model.lint import LintReport
from perftool.readers.discover import Inputs

SAMPLES = Path(__file__).parents[2] / "sample_traces"
# Two warnings (RCP102 and RCP106) and two findings of level info.
SLOW = str(SAMPLES / "cpu" / "torch_compile_recompile.json.gz")
GOOD = str(SAMPLES / "cpu" / "healthy.json.gz")


def trace(name: str, content: str | None = None) -> str:
    """Write a trace with one step and one op, or with ``content``."""
    events = [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": "ProfilerStep#1",
            "pid": 1,
            "tid": 1,
            "ts": 0,
            "dur": 1000,
        },
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10, "dur": 100},
    ]
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(json.dumps({"traceEvents": events}) if content is None else content, encoding="utf-8")
    return name


@pytest.fixture
def reads(run: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return a function that returns the traces and parts that ``lint`` or ``analyze`` would read, for tests of what a
    gate refuses and what ``analyze`` only notes. Nothing is analysed.
    """

    def reads(*arguments: str, command: str = "lint") -> list[str]:
        found: list[str] = []

        def noted(_: Any, inputs: Inputs) -> None:
            found.extend((*inputs.traces, *inputs.parts))

        def linted(session: Any, inputs: Inputs, plan: LintPlan) -> LintReport:
            noted(session, inputs)
            return lint_nothing(plan)

        with monkeypatch.context() as patch:
            patch.setattr("perftool.commands.lint.linted", linted)
            patch.setattr("perftool.commands.analyze.show_report", noted)
            assert run(command, *arguments) == 0, run.err
        return sorted(found)

    return reads


def codes(run: Run) -> set[str]:
    return {json.loads(line)["code"] for line in run.out.splitlines()}


def test_a_good_run_passes(run: Run) -> None:
    assert run("lint", str(SAMPLES / "gaudi2_optimised")) == 0
    assert run.out == "All checks passed!\n"
    assert run.err == ""


def test_a_slow_run_fails_with_a_reason(run: Run) -> None:
    assert run("lint", str(SAMPLES / "gaudi2_unoptimised"), "--select", "GAP,SYN", "--output-format", "json-lines") == 1
    assert codes(run) >= {"GAP101", "GAP102", "SYN101"}
    assert run.err == ""


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--fail-on", "error"], 0),
        (["--fail-on", "info"], 1),
        (["--fail-on", "never"], 0),
        (["--exit-zero"], 0),
        (["--min-severity", "error"], 0),
        (["--ignore", "ALL", "--select", "RCP102"], 1),
    ],
)
def test_the_threshold_decides(run: Run, options: list[str], code: int) -> None:
    assert run("lint", SLOW, "--select", "RCP,STP", *options) == code
    hidden = "--min-severity" in options
    assert ("RCP102" in run.out) is not hidden


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "lint needs PATHS"),
        (["missing.json"], "missing.json: no such file"),
        (["*.json"], "*.json: the pattern matches no file"),
        (["."], ".: the folder contains no traces"),
        ([".", "*.json"], ".: the folder contains no traces"),
        ([SLOW, "--select", "XYZ"], "unknown rule selector 'XYZ' (from the command line)"),
        ([SLOW, "--select", "GAP101", "--ignore", "GAP101"], "no rule is left to run"),
        ([SLOW, "--select", "GAP", "--ignore", "GAP"], "no rule is left to run"),
        ([SLOW, "--fail-on", "bad"], "the command line: key fail-on: 'bad' is not one of"),
        ([SLOW, "--baseline", "missing.json"], "missing.json: the baseline cannot be read"),
        ([SLOW, "--budget", "speed<=1"], "unknown metric 'speed'"),
        ([SLOW, "--budget", "step_time_ms"], "expected a metric and its limit"),
        ([SLOW, "--also", "sarif"], "expected FORMAT:FILE"),
        ([SLOW, "--also", "xml:out.xml"], "expected FORMAT:FILE"),
        ([SLOW, "-o", "a", "--also", "json:a"], "two outputs cannot be written to the same file"),
        ([SLOW, "-o", "no/such/folder.txt"], "cannot write"),
        ([SLOW, "--rules", "missing"], "missing: not a folder"),
        ([SLOW, "--config", "missing.toml"], "missing.toml: cannot read"),
        ([SLOW, "--statistics", "--output-format", "sarif"], "--statistics works only with the text format"),
    ],
)
def test_invalid_input_exits_with_2_and_one_sentence(run: Run, arguments: list[str], message: str) -> None:
    assert run("lint", *arguments, "--exit-zero") == 2
    assert run.out == ""
    assert message in run.err
    assert len(run.err.splitlines()) == 1


def test_a_wrong_option_exits_2(run: Run) -> None:
    assert run("lint", "--no-such-option") == 2
    assert "No such option" in run.err


def test_nothing_to_check_can_be_allowed(run: Run) -> None:
    assert run("lint", ".", "--allow-empty", "--output-format", "json") == 0
    assert json.loads(run.out)["findings"] == []


def test_only_unreadable_inputs_exit_2(run: Run) -> None:
    assert run("lint", trace("empty.json", "")) == 2
    assert run.err.startswith("habana_perf_tool: empty.json: ")


@pytest.mark.parametrize("name", ["half.json", "half.json.gz"])
def test_a_half_written_trace_is_a_finding(run: Run, name: str) -> None:
    half = Path(trace("whole.json")).read_bytes()[:-2]
    Path("whole.json").unlink()
    Path(name).write_bytes(gzip.compress(half) if name.endswith(".gz") else half)
    assert run("lint", name, "--select", "SYN101") == 1
    assert run.out.splitlines() == [
        f"{name}: TRC101 [warning] {name}: the file ends before the event array is closed",
        "Found 1 finding (1 warning).",
    ]


@pytest.mark.parametrize(
    ("options", "code", "last"),
    [
        (["--select", "SYN101"], 1, "Found 1 finding (1 warning)."),
        (["--select", "SYN101", "--fail-on", "error"], 0, "Found 1 finding (1 warning)."),
        (["--select", "SYN101", "--ignore", "TRC"], 1, "Found 1 finding (1 warning)."),
        (["--select", "SYN101", "--ignore", "TRC101"], 0, "All checks passed!"),
    ],
)
def test_damage_shows_whatever_is_selected(run: Run, options: list[str], code: int, last: str) -> None:
    half = Path(trace("half.json")).read_text(encoding="utf-8")[:-2]
    assert run("lint", trace("half.json", half), *options) == code
    assert run.out.splitlines()[-1] == last


def test_impossible_device_events_show_whatever_is_selected(run: Run) -> None:
    call = x("cudaLaunchKernel", 10, 5, "cuda_runtime", correlation=1)
    events = [step(0, 0, 100), x("aten::mm", 0, 20), call, x("gemm", 20, -30, "kernel", pid=0, tid=7, correlation=1)]
    assert run("lint", trace("negative.json", document(events).decode()), "--select", "SYN101") == 1
    assert "TRC104 [warning]" in run.out


@pytest.mark.parametrize(
    ("calls", "metadata"),
    [
        pytest.param([x("cudaLaunchKernel", 2, 3, "cuda_runtime", correlation=1)], {}, id="launches"),
        pytest.param([], {"deviceProperties": [{"id": 0, "name": "NVIDIA H100"}]}, id="a named accelerator"),
    ],
)
def test_missing_device_work_shows_whatever_is_selected(
    run: Run, calls: list[Event], metadata: dict[str, object]
) -> None:
    Path("silent.json").write_bytes(document([x("aten::mm", 0, 9), *calls], **metadata))
    assert run("lint", "silent.json", "--select", "GAP,SYN") == 1
    assert "TRC103 [warning]" in run.out


@pytest.mark.parametrize("command", [["lint"], ["diff", "--fail-if", "slower:5%", "nope"]])
def test_a_line_feed_in_the_name_of_a_missing_file_begins_no_line(run: Run, command: list[str]) -> None:
    name = "run\nAll checks passed.json"
    trace("nope", NO_LENGTH)
    assert run(*command, name) == 2
    assert run.err == r"habana_perf_tool: run\nAll checks passed.json: no such file" + "\n"


def test_a_trace_cut_before_its_events_exits_2(run: Run) -> None:
    assert run("lint", trace("half.json", '{"schemaVersion": 1, "deviceProper')) == 2
    assert run.err.startswith("habana_perf_tool: half.json: ")
    assert run.err.endswith("without a traceEvents array, so not a trace\n")


NO_LENGTH = document([step(0, 0, 0), x("aten::mm", 0, 0), step(1, 0, 0), x("aten::mm", 0, 0)]).decode()


@pytest.mark.parametrize(
    "text", ['{"traceEvents": []}', '{"traceEvents": [{"ph": "M", "name": "process_name"}]}', NO_LENGTH]
)
def test_lint_fails_if_it_checked_nothing(run: Run, text: str) -> None:
    sentence = "the trace has no event with a duration, so nothing was checked; --allow-empty accepts an empty input\n"
    assert run("lint", trace("folder/rank0.json", text), "--select", "GAP101") == 2
    assert run.err == f"habana_perf_tool: folder/rank0.json: {sentence}"
    assert run("lint", "folder", "--select", "GAP101") == 2
    assert run("lint", "folder", "--allow-empty", "--select", "GAP101") == 0


@pytest.mark.parametrize(
    ("name", "text"), [("train.log", ""), ("train.log", "hello\n"), ("metrics.json", "{}"), ("env.txt", "A=B")]
)
def test_lint_fails_if_it_read_no_record(run: Run, name: str, text: str) -> None:
    Path("folder").mkdir()
    Path("folder", name).write_text(text, encoding="utf-8")
    assert run("lint", "folder", "--select", "GAP101") == 2
    what = f"folder/{name} contains nothing that this program recognises, so nothing was checked"
    assert run.err == f"habana_perf_tool: {what}; --allow-empty accepts an empty input\n"
    Path("folder", "rank0.json").symlink_to("gone.json")
    assert run("lint", f"folder/{name}", "folder", "--select", "GAP101") == 2
    # A broken link is not an empty input.
    assert run("lint", "folder", "--allow-empty", "--select", "GAP101") == 2
    Path("folder", "rank0.json").unlink()
    assert run("lint", "folder", "--allow-empty", "--select", "GAP101") == 0


@pytest.mark.parametrize(
    ("named", "text"),
    [
        (["--metrics", "lfs.json"], "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
        (["--log", "train.log"], "epoch 1\n"),
        (["--log", "*.log"], "epoch 1\n"),
        (["train.log"], "epoch 1\n"),
    ],
)  # fmt: skip
def test_lint_fails_if_a_named_file_has_no_record(run: Run, named: list[str], text: str) -> None:
    Path("traces").mkdir()
    Path("traces", "rank0.json").write_bytes(document([x("aten::mm", 0, 5)]))
    name = "lfs.json" if "lfs.json" in named else "train.log"
    Path(name).write_text(text, encoding="utf-8")

    assert run("lint", "traces", *named, "--select", "GAP") == 2
    what = f"{name} contains nothing that this program recognises"
    assert run.err == f"habana_perf_tool: {what}, so nothing was checked there; --allow-empty accepts an empty input\n"
    assert run("lint", "traces", *named, "--select", "GAP", "--allow-empty") == 0
    # The note of ``analyze`` is the same for each kind of file.
    if named[0] != "--metrics":
        assert run("analyze", "traces", *named, "--select", "GAP") == 0
        assert what in run.err
    Path("traces", "train.log").write_text(text, encoding="utf-8")
    assert run("lint", "traces", "--select", "GAP") == 0


def test_a_log_with_one_record_counts_as_read(run: Run) -> None:
    Path("train.log").write_text("hello\nCPU fallback digamma : self=HPUBFloat16Type\n", encoding="utf-8")
    assert run("lint", "train.log", "--select", "GAP") == 0
    assert run.out == "All checks passed!\n"


@pytest.mark.parametrize("named", [["old.json", "new.json"], ["*.json"], ["old.json", "."]])
def test_a_named_trace_is_not_set_aside_in_silence(run: Run, reads: Callable[..., list[str]], named: list[str]) -> None:
    for name, at in (("old.json", 1.7e15), ("new.json", 1.7e15 + 60e6)):
        info = {"distributedInfo": {"rank": 0, "world_size": 2}}
        Path(name).write_bytes(document([x("aten::mm", at, 5, pid=4000), x("aten::add", at + 10, 5, pid=4000)], **info))
    assert run("lint", *named, "--allow-empty", "--isolated") == 2
    assert run.err.splitlines()[-1] == (
        "habana_perf_tool: old.json (rank 0) is an older recording of the same process; new.json was read instead; "
        "a gate does not skip files by itself, so check each recording in a separate call, or pick one with --run NAME"
    )
    assert run("diff", ".", "*.json", "--fail-if", "slower:5%") == 2
    assert "a gate does not skip files by itself" in run.err
    assert run("lint", ".", "--run", "newest", "--select", "SYN101") == 0
    assert run.out.startswith("new.json: TRC108 [info] old.json (rank 0) is an older recording of the same process")
    assert run("analyze", "--each", *named, "--select", "SYN101") == 0
    assert ("old.json" in run.out, "new.json" in run.out) == (True, True)


def test_a_gate_passes_no_part_that_it_has_not_read(run: Run, reads: Callable[..., list[str]]) -> None:
    """A part next to traces may contain the slow rank."""
    for rank in (0, 1):
        trace(f"rank{rank}.json", json.dumps({"traceEvents": [x("aten::mm", 10, 500)], "distributedInfo": {
            "rank": rank, "world_size": 2}}))  # fmt: skip
    Path("folder").mkdir()
    assert run("analyze", "rank1.json", "--part", "folder/rank1.part", "--select", "GAP101") == 0
    Path("rank0.json").rename("folder/rank0.json")
    sentence = (
        "habana_perf_tool: folder/rank1.part was not read: its folder contains traces; a gate needs every rank, so "
        "name what to read, or leave the parts out with --exclude '*.part'\n"
    )
    for gate in (["lint", "folder"], ["diff", "rank1.json", "folder", "--fail-if", "slower:5%"]):
        assert run(*gate) == 2
        assert run.err == sentence
    assert run("lint", "folder/rank1.part", "rank1.json", "--select", "GAP101") == 2
    assert run.err.startswith("habana_perf_tool: rank1.json and folder/rank1.part both contain rank 1; leave one out")
    assert reads("folder", "--exclude", "*.part") == ["folder/rank0.json"]
    assert reads("folder/*") == ["folder/rank0.json", "folder/rank1.part"]
    assert reads("folder", command="analyze") == ["folder/rank0.json"]
    assert "folder/rank1.part was not read: its folder contains traces; name the files to read" in run.err


def test_a_folder_of_parts_says_which_part_it_lacks(run: Run, reads: Callable[..., list[str]]) -> None:
    """The parts of a cluster may be links to the disks of its hosts."""
    trace("rank0.json", document([x("aten::mm", 10, 500)]).decode())
    for folder in ("parts", "elsewhere"):
        Path(folder).mkdir()
    assert run("analyze", "rank0.json", "--part", "parts/rank0.part", "--select", "GAP101") == 0
    Path("parts/host1").symlink_to("../elsewhere")
    note = "parts/host1 is a link to another folder and was not read (name that folder, too)"
    for command in ("lint", "merge"):
        assert run(command, "parts", "--select", "GAP101") == 0
        assert note in run.err
    Path("parts/rank1.part").symlink_to("nothing")
    for gate in (["lint", "parts"], ["diff", "parts", "parts", "--fail-if", "slower:5%"],
                 ["analyze", "parts", "--summary-jsonl", "runs.jsonl"]):  # fmt: skip
        assert run(*gate) == 2
        assert run.err == (
            "habana_perf_tool: parts/rank1.part: not read: it is a broken link; a gate does not skip files by itself, "
            "so exclude it with --exclude, or name the files to read\n"
        )
    assert reads("parts", "--exclude", "*rank1*") == reads("parts", command="analyze") == ["parts/rank0.part"]
    assert "parts/rank1.part was not read: it is a broken link" in run.err
    assert run("merge", "parts", "--select", "GAP101") == 2
    assert run.err == "habana_perf_tool: parts/rank1.part: it is a broken link\n"


HOST_TRACE = "prof-data/host/host_trace.json"
PAGE = """\
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0"} 9.0
vllm:num_preemptions_total{engine="0"} 0.0
"""


def archive(path: str, rank: int | None) -> None:
    """An archive from Gaudi's profiler that contains only host calls."""
    info = {} if rank is None else {"distributedInfo": {"rank": rank}}
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(HOST_TRACE, document([x("aten::mm", 1.7e15, 5e5)], **info))


@pytest.mark.parametrize(
    ("traces", "archives", "named", "doubt"),
    [
        ({"rank0.json": (0, 2)}, {"rank1.hltv": None}, ["."], "rank1.hltv"),
        ({"rank0.json": (0, 2)}, {"rank1.hltv": 1}, ["rank0.json", "./rank1.hltv"], "./rank1.hltv"),
        ({"rank0.json": (0, 2)}, {"run.hltv": 1}, ["."], "run.hltv"),
        ({"rank0.json": (0, 2)}, {"rank0.hltv": None}, ["."], None),
        ({"rank0.json": (0, 2)}, {"run.hltv": None}, ["."], None),
        ({"rank0.json": (0, 2)}, {"rank0.hltv": None, "run.hltv": None}, ["."], "run.hltv"),
        ({"trace.json": (None, None)}, {"a.hltv": None, "b.hltv": None}, ["."], "b.hltv"),
        ({"rank0.json": (0, 2)}, {"rank1.hltv": None}, ["rank0.json"], None),
        ({"rank0.json": (0, 1)}, {"rank1.hltv": None}, ["."], None),
        ({"rank0.json": (0, 1)}, {"rank1.hltv": None}, ["*.*"], "rank1.hltv"),
        ({"trace.json": (None, None)}, {"rank1.hltv": None}, ["."], None),
        ({"trace.json": (None, None)}, {"rank0.hltv": None, "rank1.hltv": None}, ["."], "rank1.hltv"),
    ],
    ids=["name", "named", "metadata", "same rank", "any rank", "one more", "two for one", "not given", "complete",
         "complete, named", "no rank", "two ranks"],
)  # fmt: skip
def test_a_gate_needs_the_host_calls_of_all_ranks(
    run: Run, reads: Callable[..., list[str]], traces: dict[str, tuple[int | None, int | None]],
    archives: dict[str, int | None], named: list[str], doubt: str | None,
) -> None:  # fmt: skip
    for name, (rank, size) in traces.items():
        info = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": size}}
        trace(name, document([x("aten::mm", 1.7e15, 5)], **info).decode())
    for name, stated in archives.items():
        archive(name, stated)
    if doubt is None:
        assert reads(*named) == list(traces)
    else:
        assert run("lint", *named) == 2
        assert run.err.startswith(f"habana_perf_tool: {doubt}: its host calls")


def test_a_note_names_an_archive_whose_host_calls_are_not_read(run: Run, reads: Callable[..., list[str]]) -> None:
    trace("rank0.json", document([x("aten::mm", 1.7e15, 5)], distributedInfo={"rank": 0, "world_size": 2}).decode())
    archive("rank1.hltv", None)
    assert reads("rank0.json", "rank1.hltv", command="analyze") == ["rank0.json"]
    note = "rank1.hltv: its host calls (rank 1) are not read: they are used only if there are no traces"
    assert (run.err.splitlines()[0], "left out" in run.err) == (note, False)
    assert run("diff", "rank0.json", ".", "--fail-if", "slower:5%") == 2
    assert "rank1.hltv: its host calls (rank 1) are not read" in run.err


def test_a_gate_passes_no_result_that_it_does_not_use(run: Run) -> None:
    """The newest result has fewer requests, because some failed."""
    for day, requests in ((1, 1000), (2, 990)):
        result = {"completed": requests, "mean_ttft_ms": 50 * day, "duration": 10}
        trace(f"folder/vllm-infqps-m-2026010{day}-010101.json", json.dumps(result))
    first, second = sorted(map(str, Path("folder").iterdir()))
    sentence = (
        f"habana_perf_tool: {second}: a result for 990 requests is not used, because the one for 1,000 requests in "
        f"{first} is; a gate does not skip results by itself, so check it in a separate call, or exclude it with "
        "--exclude\n"
    )
    for named in (["folder"], [first, second], ["folder/*.json"]):
        assert run("lint", *named, "--select", "TRC", "--budget", "ttft_ms<=60") == 2
        assert run.err == sentence
    assert run("lint", second, "--select", "TRC", "--budget", "ttft_ms<=60") == 1
    assert run("lint", "folder", "--exclude", second, "--select", "TRC", "--budget", "ttft_ms<=60") == 0
    assert run("analyze", "folder", "--select", "TRC", "--summary-jsonl", "runs.jsonl") == 0
    assert f"{second}: a result for 990 requests is not used" in " ".join(run.out.split())
    assert json.loads(Path("runs.jsonl").read_text())["lost"] == 1
    trace("folder/run.json")
    assert run("diff", "folder", "folder", "--select", "GAP101", "--fail-if", "slower:5%") == 2
    assert "run is incomplete, so it is not judged" in run.err


@pytest.mark.parametrize("name", ["slow.json.gz", "bench.jsonl.zst", "sglang_1123_1000_random.jsonl", "long.json"])
def test_a_gate_reads_results_that_are_compressed_or_long_or_have_the_name_of_sglang(run: Run, name: str) -> None:
    trace("folder/bench.json", json.dumps({"completed": 1000, "mean_ttft_ms": 50}))
    texts = ["x" * (9 << 20 if name == "long.json" else 9)]
    slow = json.dumps({"completed": 990, "mean_ttft_ms": 100, "generated_texts": texts}).encode()
    packed = {".gz": gzip.compress, ".zst": zstandard.compress}.get(Path(name).suffix, bytes)(slow)
    Path("folder", name).write_bytes(packed)
    assert run("lint", "folder", "--budget", "ttft_ms<=60", "--select", "TRC") == 2
    assert f"{name}: a result for 990 requests is not used" in run.err


def test_a_gate_reads_compressed_pages(run: Run) -> None:
    trace("folder/metrics_before.txt", PAGE)
    after = PAGE + "vllm:time_to_first_token_seconds_count 1.0\nvllm:time_to_first_token_seconds_sum 0.1\n"
    Path("folder/metrics_after.txt.gz").write_bytes(gzip.compress(after.encode()))
    assert run("lint", "folder", "--budget", "ttft_ms<=60", "--select", "SRV202") == 1
    assert "ttft_ms is 100 ms" in run.out


@pytest.mark.parametrize("name", ["METRICS_AFTER.TXT", "metrics_after.txt.xz", "metrics_after.txt.bz2",
                                  "metrics_after.txt.1", "metrics_after.txt~"])  # fmt: skip
def test_a_gate_drops_no_page_in_silence(run: Run, reads: Callable[..., list[str]], name: str) -> None:
    trace("folder/metrics_before.txt", PAGE)
    after = PAGE + "vllm:time_to_first_token_seconds_count 1.0\nvllm:time_to_first_token_seconds_sum 0.1\n"
    trace(f"folder/{name}", after)
    lint = ("lint", "folder", "--budget", "ttft_ms<=60", "--select", "SRV202")
    if name.isupper():
        assert run(*lint) == 1
        assert "ttft_ms is 100 ms" in run.out
        return
    assert run(*lint) == 2
    assert f"folder/{name}: not read: its ending is not known" in run.err
    assert reads("folder", command="analyze") == []
    assert f"folder/{name} was not read: its ending is not known" in run.err


@pytest.mark.parametrize("name", ["Server.LOG", "server.log.1", "server.log.gz", "server.log.2.gz", "server.log.xz"])
def test_a_gate_drops_no_log_in_silence(run: Run, name: str) -> None:
    load = "Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 9.0 tokens/s, Running: 2 reqs"
    text = f"INFO 11-23 14:00:10 [l.py:335] Engine 000: {load}, Waiting: 0 reqs\n".encode()
    trace("folder/bench.json", json.dumps({"completed": 1000, "mean_ttft_ms": 50}))
    Path("folder", name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    lint = ("lint", "folder", "--budget", "output_tokens_per_s>=500", "--select", "TRC,BUD")
    assert run(*lint) == (2 if name.endswith(".xz") else 1)
    assert ("its ending is not known" in run.err) == name.endswith(".xz")


def test_an_older_part_of_a_log_is_no_replica(run: Run) -> None:
    for name, at in (("server.log", "14:00:30"), ("server.log.1", "14:00:20")):
        load = "Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 280.0 tokens/s, Running: 2 reqs"
        trace(f"folder/{name}", f"INFO 11-23 {at} [l.py:335] Engine 000: {load}, Waiting: 0 reqs\n")
    assert run("lint", "folder", "--budget", "output_tokens_per_s>=500", "--select", "TRC,BUD") == 2
    assert "folder/server.log.1: the log of another run of the server is not used" in run.err


def test_a_gate_adds_the_rates_of_replicas_only(run: Run) -> None:
    def log(name: str, day: int, rate: int) -> str:
        load = f"Avg generation throughput: {rate}.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, Preemptions: 1"
        lines = [f"INFO 11-{day} 14:00:{at:02} [l.py:335] Engine 000: Avg prompt throughput: 1.0 tokens/s, {load}\n"
                 for at in (10, 20)]  # fmt: skip
        return trace(f"{name}.log", "".join(lines))

    limits = ("--budget", "output_tokens_per_s>=500", "--select", "TRC,BUD")
    log("folder/server", 23, 280)
    assert run("lint", "folder", *limits) == 1
    log("folder/replica", 23, 280)
    assert run("lint", "folder", *limits, "--budget", "preemptions<=4") == 0
    old = log("folder/replica", 22, 280)
    assert run("lint", "folder", *limits) == 2
    assert f"{old}: the log of another run of the server is not used" in run.err
    assert run("analyze", "folder", "--select", "TRC,BUD") == 0
    assert f"{old}: the log of another run of the server is not used" in run.out
    assert run("lint", "folder", *limits, "--exclude", old, "--budget", "preemptions<=2") == 1
    assert "preemptions is" not in run.out
    start = "INFO 11-23 13:00:00 [u.py:286] non-default args: {'max_num_seqs': 64}\n"
    logs = [Path(log(name, day, rate)).read_text() for name, day, rate in (("fast", 22, 900), ("slow", 23, 280))]
    trace("again/server.log", "".join(start + one for one in logs))
    assert run("lint", "again", *limits) == 2
    clause = "again/server.log: the server starts again in line 4, and its load before that is not used"
    assert run.err.startswith(f"habana_perf_tool: {clause}; a gate does not skip results by itself")
    assert run("analyze", "again", "--select", "TRC,BUD") == 0
    assert clause.removesuffix(" not used") in run.out


def test_a_gate_passes_no_page_of_a_server_before_its_restart(run: Run) -> None:
    for name, started, tokens in (("before", 1.7e9, 1_000_000), ("after", 1.8e9, 10_000)):
        lines = ["# HELP vllm:generation_tokens_total tokens", f"vllm:generation_tokens_total {tokens}.0",
                 f"vllm:generation_tokens_created {started}"]  # fmt: skip
        trace(f"folder/metrics_{name}.txt", "\n".join([*lines, ""]))
    assert run("lint", "folder", "--select", "SRV202") == 2
    assert run.err.startswith(
        "habana_perf_tool: folder/metrics_after.txt: a metrics page of another server, or from before or"
    )
    assert run("lint", "folder/metrics_after.txt", "--select", "SRV202") == 0


def test_a_gate_does_not_pass_a_page_that_breaks_off(run: Run) -> None:
    """The number in the last line is 752, but only its first digit was saved."""
    waits = "vllm:time_to_first_token_seconds_count 1.0\nvllm:time_to_first_token_seconds_sum 752"
    lint = ("lint", "metrics_after.txt", "--select", "GAP101")
    trace("metrics_after.txt", f"{PAGE}{waits}\n")
    assert run(*lint) == 0
    trace("metrics_after.txt", f"{PAGE}{waits[:-2]}")
    assert run(*lint) == 1
    assert "TRC101 [warning] metrics_after.txt: the last line of the metrics page is truncated" in run.out
    assert run("analyze", "metrics_after.txt", "--select", "GAP101", "--summary-jsonl", "runs.jsonl") == 0
    summary = json.loads(Path("runs.jsonl").read_text())
    assert (summary["lost"], summary["metrics"]["ttft_ms"]) == (1, None)


def test_a_damaged_archive_of_another_rank_may_contain_host_calls(run: Run) -> None:
    trace("rank0.json", document([x("aten::mm", 1.7e15, 5)], distributedInfo={"rank": 0, "world_size": 2}).decode())
    Path("rank1.hltv").write_bytes(b"\x1f\x8bdamaged")
    assert run("lint", ".", "--select", "GAP101") == 2
    assert "rank1.hltv: its host calls (rank 1) are not read" in run.err


def recording(path: str, at: float, pid: int, *, rank: int | None = None, events: int = 20) -> str:
    info = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 2}}
    calls = [x(f"aten::mm{number}", at + 10 * number, 5, pid=pid) for number in range(events)]
    return trace(path, json.dumps({"traceEvents": calls, **info}))


LATER = {"minute": 60e6, "second": 1e6, "hour": 3600e6}


@pytest.mark.parametrize(
    ("names", "later", "pids", "ranks", "events"),
    [
        (("old/a.json", "new/b.json"), "hour", (1, 2), (None, None), (20, 20)),
        (("old/rank0.json", "new/rank0.json"), "minute", (1, 2), (0, 0), (20, 20)),
        (("trace_0.json", "trace_1.json"), "second", (4242, 4243), (None, None), (20, 20)),
        (("rank0.json", "rank1.json"), "hour", (1, 2), (0, 1), (20, 20)),
        (("long.json", "short.json"), "minute", (4242, 4242), (0, 0), (200, 20)),
        (("a.1700000000000000000.pt.trace.json", "a.1700000060000000000.pt.trace.json"), "minute", (7, 7), (0, 0),
         (20, 20)),
    ],
    ids=["folders", "ranks", "same time", "wrong clock", "same process", "profiler's names"],
)  # fmt: skip
def test_a_gate_checks_the_only_recording_of_a_folder(
    run: Run, reads: Callable[..., list[str]], names: tuple[str, str], later: str, pids: tuple[int, int],
    ranks: tuple[int | None, int | None], events: tuple[int, int],
) -> None:  # fmt: skip
    """The gate cannot know which of several recordings is meant, or whether they are ranks of one run."""
    for at, name in enumerate(names):
        recording(f"folder/{name}", 1.7e15 + LATER[later] * at, pids[at], rank=ranks[at], events=events[at])
    for gate in (["lint", "folder"], ["diff", "folder", "folder", "--fail-if", "slower:5%"]):
        assert run(*gate) == 2
        assert "a gate does not skip files by itself, so " in run.err
    assert run("query", "folder", "SELECT 1") == 0
    if events[0] == events[1]:
        assert reads("folder", "--run", "newest") == [f"folder/{names[1]}"]
    else:
        assert run("lint", "folder", "--run", "newest") == 2
    name = names[0].split("/")[0].removesuffix(".json").removesuffix(".pt.trace")
    assert reads("folder", "--run", name) == [f"folder/{names[0]}"]
    assert reads("folder", "--exclude", f"*{names[0]}") == [f"folder/{names[1]}"]


def test_the_sentence_about_several_recordings_names_them_and_the_ways_out(
    run: Run, reads: Callable[..., list[str]]
) -> None:
    recording("folder/old/rank0.json", 1.7e15, 1)
    recording("folder/new/rank0.json", 1.7e15 + 6e7, 2)
    assert run("lint", "folder") == 2
    assert run.err == (
        "habana_perf_tool: folder/old/rank0.json: left out as part of another recording; a gate does not skip files by "
        "itself, so pick a recording with --run NAME or --run newest, or join all with --as-one-run\n"
    )
    assert len(reads("folder", "--as-one-run")) == 2


def test_a_saved_report_states_what_it_leaves_out(run: Run) -> None:
    recording("folder/old/rank0.json", 1.7e15, 1)
    recording("folder/new/rank0.json", 1.7e15 + 6e7, 2)
    assert run("analyze", "folder", "--select", "GAP101", "--output-format", "json", "-o", "folder.json") == 0
    assert json.loads(Path("folder.json").read_text())["omitted"] == [
        "folder/old/rank0.json: left out as part of another recording"
    ]
    assert run("diff", "folder/old", "folder.json", "--select", "GAP101", "--fail-if", "slower:5%") == 2
    assert "the new run is incomplete, so it is not judged: folder/old/rank0.json: left out as part of" in run.err
    options = ["--select", "GAP101", "--output-format", "json", "-o", "new.json"]
    assert run("analyze", "folder", "--run", "newest", *options) == 0
    assert json.loads(Path("new.json").read_text())["omitted"] == []


@pytest.mark.parametrize("inputs", [["folder"], ["folder/*/*.json"], [
    "folder/before/rank0.json", "folder/before/rank1.json", "folder/after/rank0.json"
]], ids=["folder", "pattern", "files"])  # fmt: skip
def test_the_newest_recording_must_be_complete(run: Run, inputs: list[str]) -> None:
    for night, ranks in (("before", (0, 1)), ("after", (0,))):
        for rank in ranks:
            at = 1.7e15 + (120e6 if night == "after" else 0.5e6 * rank)
            recording(f"folder/{night}/rank{rank}.json", at, len(night) * 1000 + rank, rank=rank)
    assert run("lint", *inputs, "--run", "newest", "--select", "GAP101") == 2
    assert run.err.splitlines()[-1] == (
        "habana_perf_tool: after: the newest recording is incomplete (1 of 2 ranks); a gate does not skip files by "
        "itself, so pick a recording with --run NAME"
    )
    # The ranks of two runs that follow each other are not mixed.
    assert run("lint", *inputs, "--run", "before", "--select", "TRC107") == 0
    assert run.out == "All checks passed!\n"


@pytest.mark.parametrize("inputs", ["folder", "folder/**/*.json"])
@pytest.mark.parametrize("name", ["host_1001.1700000000000000000.pt.trace.json", "old/rank1.json"])
def test_with_a_chosen_recording_a_gate_needs_every_file_that_cannot_be_read(
    run: Run, reads: Callable[..., list[str]], name: str, inputs: str
) -> None:
    """A file that cannot be read may be a rank of the chosen recording."""
    newest = recording("folder/new/host_1000.1700000000000000000.pt.trace.json", 1.7e15, 1000, rank=0)
    recording("folder/old/host_1000.1600000000000000000.pt.trace.json", 1.6e15, 1000, rank=0)
    for chosen in ("newest", "new"):
        assert reads(inputs, "--run", chosen) == [newest]
    trace(f"folder/{name}", "")
    for chosen in ("newest", "new"):
        # If the file counts as a rank of the recording, it is a finding.
        assert run("lint", inputs, "--run", chosen, "--select", "GAP101") in (1, 2)
        assert f"folder/{name}: " in run.out + run.err
        assert reads(inputs, "--run", chosen, "--exclude", f"*{name}") == [newest]


@pytest.mark.parametrize(
    ("ranks", "later_us", "why"),
    [
        ((0,), 120e6, "has fewer ranks than another one"),
        ((0, 1), 3e15, "is dated in the future"),
        ((0, 1), 120e6, None),
    ],
)
def test_the_newest_recording_is_one_that_the_user_may_mean(
    run: Run, reads: Callable[..., list[str]], ranks: tuple[int, ...], later_us: float, why: str | None
) -> None:
    """The traces state no world size."""
    for night, at, present in (("before", 1.7e15, (0, 1)), ("after", 1.7e15 + later_us, ranks)):
        for rank in present:
            event = x("aten::mm", at, 5, pid=len(night) * 1000 + rank)
            trace(f"folder/{night}/rank{rank}.json", document([event, event | {"ts": at + 9}]).decode())
    if why is None:
        assert reads("folder", "--run", "newest") == ["folder/after/rank0.json", "folder/after/rank1.json"]
    else:
        assert run("lint", "folder", "--run", "newest") == 2
        assert f"habana_perf_tool: after: the newest recording {why}; a gate" in run.err


def test_ranks_of_different_days_are_not_one_run(run: Run, reads: Callable[..., list[str]]) -> None:
    """Only the first bytes of a large compressed trace are read to find the recordings in a folder. The origin of its
    times may be at the end, where PyTorch 2.3 wrote it."""
    for rank, day in ((0, 1), (1, 0)):
        events = [x("aten::mm", 10, 5, pid=1000 + rank), x("aten::add", 20, 5, pid=1000 + rank)]
        trace_text = json.dumps({
            "distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events,
            "noise": os.urandom(300_000).hex(),
            "baseTimeNanoseconds": 1_700_000_000_000_000_000 + day * 86_400_000_000_000,
        })  # fmt: skip
        Path(f"rank{rank}.json.gz").write_bytes(gzip.compress(trace_text.encode()))
    assert run("lint", ".", "--select", "GAP101") == 2
    assert run.err == (
        "habana_perf_tool: the traces are of different recordings: rank 0 was recorded 86400 s after rank 1; name the "
        "traces of one recording, or join them with --as-one-run\n"
    )
    assert reads(".", "--as-one-run") == ["rank0.json.gz", "rank1.json.gz"]


def test_with_a_chosen_recording_a_gate_needs_the_host_calls_of_its_ranks(run: Run) -> None:
    for night, at in (("before", 1.7e15), ("after", 1.7e15 + 120e6)):
        recording(f"folder/{night}/rank0.json", at, 1000, rank=0)
        archive(f"folder/{night}/rank1.hltv", 1)
    for inputs in (["folder", "--run", "after"], ["folder/after", "--run", "newest"]):
        assert run("lint", *inputs, "--select", "GAP101") == 2
        assert "after/rank1.hltv: its host calls (rank 1) are not read" in run.err
        assert "before/rank1.hltv: its calls" not in run.err


@pytest.mark.parametrize("name", ["late.json", "rank1.part", "late.json.gz"])
def test_a_gate_reads_everything_beside_other_kinds_of_steps(
    run: Run, reads: Callable[..., list[str]], name: str
) -> None:
    """The validation of a training run is not another recording."""
    step = "-[Strategy]DDPStrategy.{}_step.1700000000000000000.pt.trace.json"
    training = recording(f"folder/training/fit-run-0{step.format('training')}", 1.7e15, 1)
    recording(f"folder/validation/fit-run-0{step.format('validation')}", 1.7e15 + 6e7, 1)
    assert reads("folder") == [training]
    Path("folder/validation", name).write_bytes(b"cut off")
    assert run("lint", "folder", "--select", "GAP101") == 2
    assert f"folder/validation/{name}" in run.err


def test_a_part_for_a_gate_ignores_a_configuration_beside_the_traces(run: Run, reads: Callable[..., list[str]]) -> None:
    trace("folder/rank0.json")
    Path("folder/.habana_perf_tool.toml").write_text('exclude = ["*"]')
    assert reads("folder/rank0.json", "--part", "rank0.part", command="analyze") == ["folder/rank0.json"]
    assert "folder/.habana_perf_tool.toml" in run.err


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("accel1.csv.gz", gzip.compress, "the names of the profiler's tables end with .csv"),
        ("accel1.CSV~", bytes, "the names of the profiler's tables end with .csv"),
        ("accel1.csv", lambda table: table.partition(b"\n")[2],
         "it is named like a profiler table, but does not begin like one"),
        ("accel1.csv", None, "it is a broken link"),
    ],
    ids=["compressed", "another ending", "no header", "a broken link"],
)  # fmt: skip
def test_a_gate_needs_the_tables_of_all_cards(
    run: Run, reads: Callable[..., list[str]], name: str, change: Callable[[bytes], bytes] | None, why: str
) -> None:
    table = gaudi_profiler.as_csv().encode()
    Path("folder").mkdir()
    Path("folder/accel0.csv").write_bytes(table)
    Path("folder/losses.csv").write_bytes(b"loss\n1\n")
    if change is None:
        Path("folder", name).symlink_to("nothing")
    else:
        Path("folder", name).write_bytes(change(table))
    assert run("lint", "folder", "--select", "GAP101") == 2
    assert run.err == (
        f"habana_perf_tool: folder/{name}: not read: {why}; a gate does not skip files by itself, so exclude it with "
        "--exclude, or name the files to read\n"
    )
    assert reads("folder", "--exclude", "*accel1*") == ["folder/accel0.csv"]
    assert run("query", "folder", "SELECT 1") == 0
    assert f"folder/{name} was not read: {why}\n" in run.err


def test_a_gate_does_not_pass_dumps_in_which_nothing_is_recognised(run: Run) -> None:
    """A killed rank may leave an empty dump behind."""
    trace("folder/rank0.json", document([step(1, 0, 1000), x("aten::mm", 10, 100)]).decode())
    files = [Path(f"folder/nccl_trace_rank_{rank}") for rank in range(4)]
    for file, dump in zip(files, ("", "\0" * 3000, "disk quota exceeded", '{"version": "2.10"}'), strict=True):
        file.write_text(dump)
    assert run("lint", "folder", "--select", "GAP101") == 2
    sentence = f"{files[0]} and 3 more files contain nothing that this program recognises"
    assert f"{sentence}, so nothing was checked there" in run.err
    for rank, file in enumerate(files):
        file.write_text(f'{{"version": "2.10", "entries": [], "pg_config": {{}}, "rank": {rank}}}')
    assert run("lint", "folder", "--select", "GAP101") == 0
    files[0].unlink()
    files[0].symlink_to("nothing")
    assert run("lint", "folder", "--select", "GAP101") == 2
    assert f"{files[0]}: not read: it is a broken link" in run.err


def test_a_gate_does_not_pass_measurements_in_which_nothing_is_recognised(run: Run) -> None:
    """A server that dies under load leaves an empty page behind, and the page before the load would count."""
    trace("folder/metrics_before.txt", PAGE)
    texts = {
        "metrics_after.txt": "", "metrics_after.prom": "Internal Server Error\n", "metrics-rank1.txt": "",
        "bench.json": '{"detail": "Not Found"}', "bench.txt": "Traceback (most recent call last):\n",
        "sglang_bench.jsonl": '{"completed": 4}\n', "sglang_1123_48_random.jsonl": "", "metrics_after.txt.gz": "",
    }  # fmt: skip
    files = sorted(trace(f"folder/{name}", text) for name, text in texts.items())
    lint = ("lint", "folder", "--budget", "preemptions<=0", "--select", "GAP101")
    assert run(*lint) == 2
    sentence = f"{files[0]} and 7 more files contain nothing that this program recognises"
    assert f"{sentence}, so nothing was checked there" in run.err
    assert run("analyze", "folder", "--select", "GAP101", "--summary-jsonl", "runs.jsonl") == 0
    assert sentence in run.err
    assert json.loads(Path("runs.jsonl").read_text())["lost"] == len(files)
    assert run(*lint, "--allow-empty") == 0
    assert run(*lint, *(word for name in texts for word in ("--exclude", f"*/{name}"))) == 0
    for file in files:
        Path(file).unlink()
    Path(files[0]).symlink_to("nothing")
    assert run(*lint) == 2
    assert f"{files[0]}: not read: it is a broken link" in run.err


def test_a_gate_does_not_pass_a_benchmark_in_which_no_request_succeeded(run: Run) -> None:
    failed = {"completed": 0, "failed": 32, "mean_ttft_ms": 0.0, "p99_ttft_ms": 0.0}
    good = {"completed": 32, "failed": 0, "mean_ttft_ms": 9.0, "p99_ttft_ms": 20.0}
    Path("bench.json").write_text(json.dumps(failed))
    lint = ("lint", "bench.json", "--select", "GAP101")
    assert run(*lint) == 1
    assert "TRC101 [warning] bench.json: no request of the benchmark succeeded" in run.out
    assert run(*lint, "--budget", "ttft_p99_ms<=500", "--fail-on", "error") == 1
    assert "BUD102" in run.out
    assert run("analyze", "bench.json", "--select", "GAP101", "--summary-jsonl", "runs.jsonl") == 0
    summary = json.loads(Path("runs.jsonl").read_text())
    assert (summary["lost"], summary["metrics"]["ttft_ms"]) == (1, None)
    # The server was not ready for the first run.
    Path("bench.json").write_text(f"{json.dumps(failed)}\n{json.dumps(good)}\n")
    assert run(*lint, "--budget", "ttft_p99_ms<=500") == 0


@pytest.mark.parametrize("name", ["metrics-rank0.json", "metrics-rank0.json.1"])
def test_a_gate_does_not_pass_metrics_in_which_nothing_is_recognised(run: Run, name: str) -> None:
    trace("folder/rank0.pt.trace.json")
    lint = ("lint", "folder", "--isolated", "--select", "FBK101,TRC101")
    fallbacks = {"TotalNumber": 900, "FallbackOps": {"aten::nonzero": 900}}
    whole = {"metric_name": "cpu_fallback", "triggered_by": "process_exit", "statistics": fallbacks}
    damaged = {key.replace("name", "nane"): value for key, value in whole.items()}
    for text in ("", "[\n]\n", json.dumps([damaged])):
        file = trace(f"folder/{name}", text)
        assert run(*lint) == 2
        assert f"{file} contains nothing that this program recognises, so nothing was checked there" in run.err
        assert run(*lint, "--exclude", f"*/{name}") == 0
    # The second record is intact.
    trace(f"folder/{name}", json.dumps([damaged, whole]))
    assert run(*lint) == 1
    assert ("aten::nonzero" in run.out, "an object in the file is not a metrics record" in run.out) == (True, True)
    # Many other programs write such files.
    for text in ('{"loss": 2.0}', '{"iteration": 1}\n{"iteration": 2}\n', '[{"loss": 2.0}]', "{}"):
        trace(f"folder/{name}", text)
        assert run(*lint) == 0


@pytest.mark.parametrize(
    "kind", ["a broken link", "a folder", "a special file (such as a pipe) or a link to an empty file"]
)
def test_a_gate_needs_all_matches_of_a_pattern(run: Run, reads: Callable[..., list[str]], kind: str) -> None:
    trace("runs/rank0.json")
    other = Path("runs/rank1.json")
    if kind == "a folder":
        trace("runs/rank1.json/trace.json")
    elif kind == "a broken link":
        other.symlink_to("nothing")
    else:
        os.mkfifo(other)
    for gate in (["lint", "runs/*.json"], ["diff", "runs/*.json", "runs/*.json", "--fail-if", "slower:5%"]):
        assert run(*gate, "--isolated") == 2
        assert run.err == (
            f"habana_perf_tool: {other}: not read, because it is {kind}; a gate does not skip files by itself, so "
            "exclude it with --exclude, or name the files to read\n"
        )
    assert reads("runs/*.json", "--exclude", "*/rank1.json") == ["runs/rank0.json"]
    assert reads("runs/*.json", command="analyze") == ["runs/rank0.json"]
    assert f"{other} is {kind}, and was not read" in run.err
    assert run("lint", "runs/rank0.json", "--log", "runs/rank1*", "--isolated") == 2


@pytest.mark.parametrize("kind", ["a broken link", "a special file (such as a pipe) or a link to an empty file"])
def test_a_gate_needs_all_traces_of_a_folder(run: Run, reads: Callable[..., list[str]], kind: str) -> None:
    """The disk with the trace of a rank may not be mounted."""
    trace("runs/rank0.json")
    other = Path("runs/sub/rank1.json.gz")
    other.parent.mkdir()
    if kind == "a broken link":
        other.symlink_to("nothing")
    else:
        os.mkfifo(other)
    for gate in (["lint", "runs"], ["diff", "runs", "runs", "--fail-if", "slower:5%"]):
        assert run(*gate, "--isolated") == 2
        assert run.err == (
            f"habana_perf_tool: {other}: not read: it is {kind}; a gate does not skip files by itself, so exclude it "
            "with --exclude, or name the files to read\n"
        )
    assert reads("runs", "--exclude", "*/rank1*") == ["runs/rank0.json"]
    assert reads("runs", command="analyze") == ["runs/rank0.json"]
    assert run.err.count(f"{other} is {kind}, and was not read") == 1


def test_a_gate_does_not_pass_a_trace_in_another_compression(run: Run, reads: Callable[..., list[str]]) -> None:
    trace("runs/rank0.json")
    other = Path("runs/rank1.json.xz")
    other.write_bytes(lzma.compress(Path("runs/rank0.json").read_bytes()))
    for gate in (["lint", "runs"], ["diff", "runs", "runs", "--fail-if", "slower:5%"]):
        assert run(*gate, "--isolated") == 2
        assert run.err == (
            f"habana_perf_tool: {other}: not read: the names of traces end with .json, .json.gz or .json.zst; a gate "
            "does not skip files by itself, so exclude it with --exclude, or name the files to read\n"
        )
    assert reads("runs", "--exclude", "*.xz") == ["runs/rank0.json"]
    assert run("analyze", "runs", "--select", "GAP101", "--output-format", "json", "-o", "saved.json") == 0
    assert json.loads(Path("saved.json").read_text())["omitted"] == [
        f"{other}: not read: the names of traces end with .json, .json.gz or .json.zst"
    ]
    assert run("diff", "saved.json", "saved.json", "--fail-if", "slower:5%") == 2


def test_a_folder_whose_files_match_a_pattern_is_read(run: Run, reads: Callable[..., list[str]]) -> None:
    file = trace("runs/sub/rank0.json")
    Path("runs/empty").mkdir()
    for patterns in (["runs/**"], ["runs/**/*"], ["runs/**/*.json"], ["runs/**/*.json", "runs/sub"]):
        assert reads(*patterns) == [file]
        assert run.err == ""


@pytest.mark.parametrize("text", ["", "<html>", "\0" * 99, "{'traceEvents': []}"])
def test_a_gate_does_not_pass_a_file_that_cannot_be_read_beside_a_recording(
    run: Run, reads: Callable[..., list[str]], text: str
) -> None:
    readable = trace("folder/host_1.1700000000000000000.pt.trace.json")
    Path("folder/rank1.json").write_text(text)
    assert run("lint", "folder", "--select", "GAP101") == 2
    assert run.err == (
        "habana_perf_tool: folder/rank1.json: not read, because it does not look like a trace; a gate does not skip "
        "files by itself, so exclude it with --exclude, or name the files to read\n"
    )
    assert reads("folder", "--exclude", "*/rank1.json") == [readable]
    assert run("query", "folder", "SELECT 1") == 0


def test_damaged_traces_with_the_names_of_other_files_are_no_such_files(run: Run) -> None:
    names = ("deepspeed_rank1.json", "deepspeed_rank2.json", "x_metrics.json", "y_metrics.json")
    trace("folder/rank0.json")
    whole = Path("folder/rank0.json").read_text()

    def lint(*texts: str) -> int:
        for name, text in zip(names, 2 * texts, strict=True):
            trace(f"folder/{name}", text)
        return run("lint", "folder", "--select", "TRC")

    assert lint(whole[30:], "<html>") == 1
    assert [name for name in names if f"folder/{name}: TRC000" not in run.out] == []
    lint(*2 * ['{"iteration": 1, "loss": 2.0}\n{"iteration": 2, "loss": 1.5}\n'])
    assert "TRC000" not in run.out
    for name in names:
        Path("folder", name).unlink()
    for name in names[::2]:
        # A log line may have ended up in the file.
        trace(f"folder/{name}", f"[22:01:02.123456][PT_BRIDGE][info ] x\n{whole}")
        assert run("lint", "folder", "--select", "TRC") != 0
        assert name in run.out + run.err
        Path("folder", name).unlink()


@pytest.mark.parametrize("named", ["folder", "folder/*.json"], ids=["folder", "named"])
def test_a_trace_behind_lines_of_a_log_is_no_log(run: Run, named: str) -> None:
    line = "INFO 01-01 10:00:00 [x.py:1] Model loading took 1.0 GiB memory\n"
    for rank in range(5):
        info = {"rank": rank, "world_size": 5}
        trace(f"folder/rank{rank}.json", document([x("aten::mm", 10, 500)], distributedInfo=info).decode())
    plain, escaped, long, in_a_string = (Path(f"folder/rank{rank}.json") for rank in range(1, 5))
    text = escaped.read_text().replace('"ph"', r'"\u0070h"').replace('"traceEvents"', r'"\u0074raceEvents"')
    plain.write_text(line + plain.read_text())
    escaped.write_text(line + text)
    long.write_text(line * 200_000 + long.read_text())
    in_a_string.write_text(line + json.dumps({"text": in_a_string.read_text()}))
    assert run("lint", named, "--select", "TRC") == 1
    assert [rank for rank in range(1, 5) if f"folder/rank{rank}.json: TRC000" not in run.out] == []


def test_lint_fails_if_a_rank_was_not_checked(run: Run) -> None:
    def of_rank(rank: int, events: list[Event]) -> None:
        info = {"rank": rank, "world_size": 3}
        trace(f"folder/rank{rank}.json", document(events, distributedInfo=info).decode())

    trace("folder/rank0.json")
    of_rank(1, [])
    lint = ("lint", "folder", "--select", "TRC")
    sentence = "no event with a duration, so not every rank was checked; --allow-empty accepts an empty input\n"
    assert run(*lint) == 2
    assert run.err == f"habana_perf_tool: folder/rank1.json: the trace has {sentence}"
    assert run(*lint, "--allow-empty") == 0
    of_rank(2, [{"ph": "M", "name": "process_name"}])
    assert run(*lint) == 2
    assert run.err == f"habana_perf_tool: folder/rank1.json and 1 more trace have {sentence}"


@pytest.mark.skipif(os.name == "nt", reason="needs a shell with pipes")
def test_the_exit_code_does_not_change_if_the_reader_stops_early() -> None:
    read, write = os.pipe()
    os.close(read)
    half = Path(trace("half.json")).read_text(encoding="utf-8")[:-2]
    command = [sys.executable, "-m", "perftool", "lint", trace("half.json", half), "--select", "SYN101"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr.count("Traceback")) == (1, 0)


def test_many_small_files_are_one_run(run: Run) -> None:
    for number in range(4):
        trace(f"many/rank{number}.json")
    assert run("lint", "many", "--select", "TRC", "--output-format", "json") == 0
    assert len(json.loads(run.out)["inputs"]) == 4


def test_one_unreadable_input_among_others_is_a_finding(run: Run) -> None:
    options = ("--select", "GAP101", "--output-format", "json-lines")
    assert run("lint", trace("a.json"), trace("b.json", "no trace"), *options) == 1
    (found,) = [json.loads(line) for line in run.out.splitlines() if "TRC000" in line]
    assert found["file"] == "b.json"


def test_stdin_has_the_name_given_to_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    half = Path(trace("a.json")).read_text(encoding="utf-8")[:-2]
    with open(trace("a.json", half), encoding="utf-8") as file:
        monkeypatch.setattr("sys.stdin", file)
        assert (
            run("lint", "-", "--select", "TRC", "--stdin-filename", "night.json", "--output-format", "json-lines") == 1
        )
    assert [json.loads(line)["file"] for line in run.out.splitlines()] == ["night.json"]


@pytest.mark.parametrize("name", ["text", "json", "json-lines", "sarif", "junit", "github", "gitlab"])
def test_artefacts_contain_no_absolute_path(run: Run, name: str) -> None:
    assert run("lint", SLOW, "--select", "RCP,STP", "--output-format", name) == 1
    assert str(SAMPLES) not in run.out
    assert "torch_compile_recompile" in run.out


def test_the_same_input_gives_the_same_bytes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("lint", SLOW, "--select", "RCP,STP", "--output-format", "sarif")
    first = run.out
    assert "RCP102" in first
    # The second time, no analysis is remembered.
    monkeypatch.setattr("builders.remembered._key", lambda _: None)
    run("lint", SLOW, "--select", "RCP,STP", "--output-format", "sarif")
    assert run.out == first


def test_several_formats_in_one_run(run: Run) -> None:
    outputs = ("-o", "out.txt", "--also", "sarif:out.sarif", "--also", "junit:out.xml")
    assert run("lint", SLOW, "--select", "RCP,STP", *outputs) == 1
    assert run.out == ""
    assert run.err.splitlines() == ["Wrote out.txt", "Wrote out.sarif", "Wrote out.xml"]
    assert json.loads(Path("out.sarif").read_bytes())["version"] == "2.1.0"
    assert sorted(path.name for path in Path().iterdir()) == ["out.sarif", "out.txt", "out.xml"]


def test_quiet_prints_findings_only(run: Run) -> None:
    assert run("lint", SLOW, "-q", "--select", "RCP102") == 1
    assert len(run.out.splitlines()) == 1
    assert run.err == ""


def test_statistics(run: Run) -> None:
    assert run("lint", SLOW, "--select", "RCP102,RCP106", "--statistics") == 1
    assert run.out.splitlines()[0] == "    1  RCP102  dynamic-shapes"


def test_github_appends_to_the_step_summary(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("summary.md").write_text("before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    assert run("lint", SLOW, "--select", "RCP,STP", "--output-format", "github") == 1
    text = Path("summary.md").read_text(encoding="utf-8")
    assert text.startswith("before\n### habana_perf_tool\n")
    assert "RCP102 dynamic-shapes" in text


def test_the_life_of_a_baseline(run: Run) -> None:
    assert run("lint", SLOW, "--select", "RCP,STP", "--write-baseline", "accepted.json") == 0
    assert run.err == "Accepted 3 findings: RCP102, RCP106, STP102\nWrote accepted.json\n"
    assert run("lint", SLOW, "--select", "RCP,STP", "--write-baseline", "accepted.json", "-q") == 0
    text = Path("accepted.json").read_text(encoding="utf-8")
    assert str(SAMPLES) not in text
    assert run("lint", SLOW, "--select", "RCP,STP", "--baseline", "accepted.json") == 0
    assert run.out.startswith("All checks passed! (")
    assert run("lint", GOOD, "--select", "RCP,STP", "--baseline", "accepted.json") == 0
    assert "stale baseline entry: RCP102" in run.err


def test_a_baseline_of_another_version_exits_2(run: Run) -> None:
    Path("accepted.json").write_text('{"version": 2, "findings": []}', encoding="utf-8")
    assert run("lint", SLOW, "--baseline", "accepted.json") == 2
    assert run.out == ""
    assert run.err == (
        "habana_perf_tool: accepted.json: the baseline has version 2, not 1; rewrite it with --write-baseline\n"
    )
    assert run("lint", SLOW, "--select", "RCP,STP", "--write-baseline", "accepted.json") == 0


@pytest.mark.parametrize("options", [["-o", "no/out"], ["--also", "sarif:no/out"], ["--write-baseline", "no/out"]])
def test_a_read_only_folder_exits_2(run: Run, monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
    def refuse(_: Path) -> None:  # root may write despite permissions
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("perftool.output_file.whole_file", refuse)
    assert run("lint", SLOW, "--select", "RCP,STP", "-q", *options) == 2
    assert run.err == "habana_perf_tool: no/out: cannot write (Read-only file system)\n"


def test_a_failed_write_leaves_nothing_behind(run: Run) -> None:
    Path("folder").mkdir()
    assert run("lint", SLOW, "--select", "RCP,STP", "-o", "folder") == 2
    assert run.err == "habana_perf_tool: folder: cannot write (Is a directory)\n"
    assert [path.name for path in Path().iterdir()] == ["folder"]


def test_a_finding_that_is_not_in_the_baseline_fails(run: Run) -> None:
    assert run("lint", SLOW, "--select", "RCP102", "--write-baseline", "accepted.json") == 0
    later = ("--select", "RCP,STP", "--output-format", "json-lines")
    assert run("lint", SLOW, "--baseline", "accepted.json", *later) == 1
    new = [found for found in map(json.loads, run.out.splitlines()) if not found["suppressed"]]
    assert {(found["code"], found["baseline_state"]) for found in new} == {("RCP106", "new"), ("STP102", "new")}


@pytest.mark.parametrize(
    ("budget", "code", "expected"),
    [
        ("step_time_ms<=1000", 0, set()),
        ("step_time_ms<=1", 1, {"BUD101"}),
        ("collective_time_ms<=1", 1, {"BUD102"}),
        ("items: SELECT count(*) FROM ops WHERE name = 'aten::item' <= 1000", 0, set()),
        ("items: SELECT count(*) FROM ops <= 10", 1, {"BUD101"}),
    ],
)
def test_budgets(run: Run, budget: str, code: int, expected: set[str]) -> None:
    options = ["--select", "TRC", "--output-format", "json-lines"]
    assert run("lint", GOOD, "--budget", budget, *options) == code
    assert codes(run) == expected


@pytest.mark.parametrize(
    ("slow", "expected"),
    [
        ([step(at, 2000 * at, 2000) for at in range(100, 103)], {"BUD101"}),
        # The trace of this rank contains no step marks.
        ([x("aten::mm", 0, 1000)], {"BUD102"}),
    ],
)
def test_a_budget_of_the_step_time_holds_for_each_rank(run: Run, slow: list[Event], expected: set[str]) -> None:
    fast = [step(at, 1000 * at, 1000) for at in range(9)]
    for rank, events in enumerate((fast, slow)):
        info = {"rank": rank, "world_size": 2}
        work = [x("aten::mm", one["ts"] + 1, 9) for one in events]
        Path(f"rank{rank}.json").write_bytes(document([*events, *work], distributedInfo=info))
    options = ["--budget", "step_time_ms<=1.5", "--select", "FUS117", "--output-format", "json-lines"]
    assert run("lint", "rank0.json", "rank1.json", *options) == 1
    assert codes(run) == expected


def test_accepted_findings_match_recordings_in_any_folder(run: Run) -> None:
    Path("next").mkdir()
    Path("next", "run.pt.trace.json.gz").write_bytes(Path(SLOW).read_bytes())
    for paths in ([], ["--baseline-paths"]):
        assert run("lint", SLOW, "--select", "RCP102", "--write-baseline", "accepted.json", *paths) == 0
        assert run("lint", "next", "--select", "RCP102", "--baseline", "accepted.json") == len(paths)
        assert run("lint", SLOW, "--select", "RCP102", "--baseline", "accepted.json") == 0


def test_findings_accepted_under_another_path_are_reported(run: Run) -> None:
    Path("next").mkdir()
    Path("next", "run.pt.trace.json.gz").write_bytes(Path(SLOW).read_bytes())
    assert run("lint", SLOW, "--select", "RCP102", "--write-baseline", "accepted.json", "-q", "--baseline-paths") == 0
    assert run("lint", "next", "--select", "RCP102", "--baseline", "accepted.json") == 1
    assert run.err.splitlines()[1:] == [
        "--baseline-paths accepts a finding only in the file that its entry names: record to the same path each time",
        "rewrite the baseline with --write-baseline to drop them",
    ]


def test_a_pass_lists_what_was_not_checked(run: Run) -> None:
    assert run("lint", SLOW, "--select", "RCP102,RCP106", "--min-severity", "error") == 0
    assert run.out == "All checks passed! (2 hidden)\n"
    assert run("lint", "*.json", "--allow-empty") == 0
    assert run.out == "Nothing to check.\n"


def test_a_query_that_fails_is_named(run: Run) -> None:
    assert run("lint", GOOD, "--select", "TRC", "--budget", "reads: SELECT nonsense FROM syncs <= 3") == 2
    assert run.err.startswith("habana_perf_tool: budget reads: Binder Error")


def test_a_note_says_if_most_of_the_recording_lies_outside_the_steps_of_a_budget(run: Run) -> None:
    events = [x("aten::mm", 0, 900), *(step(n, 1000 + 1000 * n, 1000) for n in range(8)), x("aten::mm", 1010, 7900)]
    Path("all.json").write_bytes(document(events))
    Path("few.json").write_bytes(document([*events, x("aten::mm", 9100, 15_900)]))
    budget = ["--budget", "step_time_ms<=1.5", "--select", "TRC"]
    said = "the step_time_ms budget applies to complete steps, which cover only 32.0 % of the recording"
    assert run("lint", "all.json", *budget) == 0
    assert "cover only" not in run.err
    assert run("lint", "few.json", *budget) == 0
    assert said in run.err
    assert run("lint", "few.json", "--select", "TRC") == 0
    assert said not in run.err


def test_a_broken_budget_cannot_be_accepted(run: Run) -> None:
    assert run("lint", GOOD, "--select", "TRC", "--budget", "step_time_ms<=1", "--write-baseline", "accepted.json") == 1
    assert json.loads(Path("accepted.json").read_bytes())["findings"] == []


def test_options_override_the_configuration(run: Run) -> None:
    text = 'select = ["RCP102"]\nfail-on = "error"\noutput-format = "json-lines"\n[rules.RCP102]\nseverity = "error"\n'
    Path("habana_perf_tool.toml").write_text(text, encoding="utf-8")
    assert run("lint", SLOW) == 1
    assert codes(run) == {"RCP102"}
    assert run("lint", SLOW, "--fail-on", "never") == 0
    assert run("lint", SLOW, "--isolated", "--select", "RCP102", "--fail-on", "error") == 0


def test_a_configuration_that_comes_with_the_inputs_does_not_turn_the_gate_off(run: Run) -> None:
    half = Path(trace("runs/night/half.json")).read_text(encoding="utf-8")[:-2]
    lint = ("lint", trace("runs/night/half.json", half), "--select", "SYN101")
    for place in ("runs/night", "runs"):
        config = Path(place, ".habana_perf_tool.toml")
        config.write_text("exit-zero = true\n", encoding="utf-8")
        assert run(*lint) == run("lint", "runs/night", "--select", "SYN101") == 1
        assert (
            f"{config} is ignored, because the author of the inputs may have written it; --config FILE reads it"
            in run.err
        )
        assert run(*lint, "--trust-config") == run(*lint, "--config", str(config)) == 0
        assert "is ignored" not in run.err
        config.unlink()
    Path("habana_perf_tool.toml").write_text("exit-zero = true\n", encoding="utf-8")
    assert run(*lint) == 0


def test_a_wrong_configuration_exits_2(run: Run) -> None:
    Path("habana_perf_tool.toml").write_text("colour = 1\n", encoding="utf-8")
    assert run("lint", SLOW) == 2
    assert run.err.startswith("habana_perf_tool: habana_perf_tool.toml: unknown key colour")


def test_files_can_ignore_rules(run: Run) -> None:
    pair = 'per-file-ignores = {"*.gz" = ["RCP10", "STP102"]}'
    assert run("lint", SLOW, "--select", "RCP,STP", "--config", pair) == 0


def test_the_command_line_makes_rules_quiet_in_files(run: Run) -> None:
    lint = ["lint", SLOW, "--select", "RCP102,RCP106", "--output-format", "json-lines", "--per-file-ignores"]
    assert run(*lint, "*.gz:RCP102,RCP106") == 0
    assert run(*lint, "other.gz:RCP,*.gz:RCP106") == 1
    assert codes(run) == {"RCP102"}
    assert run(*lint, "GAP") == 2
    assert "per-file ignore 'GAP': expected GLOB:RULE" in run.err
    assert run(*lint, "*.gz:GAB") == 2
    assert "unknown rule selector 'GAB' (from the command line)" in run.err


def test_per_file_ignores_of_the_command_line_replace_or_extend_those_of_a_file(run: Run) -> None:
    Path("habana_perf_tool.toml").write_text('per-file-ignores = {"*.gz" = ["RCP102"]}\n', encoding="utf-8")
    assert run("lint", SLOW, "--select", "RCP,STP", "--extend-per-file-ignores", "*.gz:RCP106") == 0
    assert run("lint", SLOW, "--select", "RCP,STP", "--per-file-ignores", "*.gz:RCP106") == 1


def test_an_ignore_without_effect_is_reported(run: Run) -> None:
    ignores = ["--per-file-ignores", "*.gz:RCP102,RCP106,RCP101,other/*:GAP"]
    assert run("lint", SLOW, "--select", "RCP,STP", *ignores) == 0
    assert "per-file ignore without effect: *.gz: RCP101 (from the command line)\n" in run.err
    assert run.err.count("per-file ignore without effect") == 1


def test_silent_leaves_the_exit_code_and_the_files(run: Run) -> None:
    assert run("lint", SLOW, "--select", "RCP,STP", "-s", "--also", "json:out.json") == 1
    assert (run.out, run.err) == ("", "")
    assert json.loads(Path("out.json").read_text(encoding="utf-8"))["findings"]


def test_show_settings(run: Run) -> None:
    assert run("lint", "--show-settings", "--fail-on", "error", "--config", 'ignore = ["GAP"]') == 0
    assert 'fail-on = "error"  # the command line\n' in run.out
    assert 'ignore = ["GAP"]  # --config \'ignore = ["GAP"]\'\n' in run.out
    assert 'min-severity = "info"  # the defaults\n' in run.out


def test_config_lists_keys(run: Run) -> None:
    assert run("config", "fail-on") == 0
    assert run.out.startswith('fail-on: string (error, warning, info, never), default "warning"\n')
    assert run("config") == 0
    assert "min-confidence: " in run.out
    assert run("config", "fail-in") == 2
    assert "did you mean fail-on?" in run.err


def test_analyze_selects_rules_too(run: Run) -> None:
    assert run("analyze", SLOW, "--select", "RCP102", "--output-format", "json") == 0
    assert {found["code"] for found in json.loads(run.out)["findings"]} == {"RCP102"}
