"""Every sample trace yields its listed findings, breaks no invariant, and reveals nothing about who recorded it."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tomli
from verdicts.invariants import breaches
from verdicts.recordings import sentences, write_with_late_clock

from perftool.engine.analysis import analysed, analyze
from perftool.engine.rules.pack import shipped_rules
from perftool.model.report import Report
from perftool.readers.discover import find_inputs
from perftool.reporters.json import render_json
from perftool.reporters.serving import serving_lines

SAMPLES = Path(__file__).parents[1] / "sample_traces"
LISTS = [SAMPLES / "expected.toml", SAMPLES / "cpu" / "expected.toml", SAMPLES / "benchmarks" / "expected.toml"]
LISTS += [SAMPLES / "serving" / "expected.toml"]
CPU_FILES = sorted((SAMPLES / "cpu").rglob("*.json.gz"))
BENCHMARK_FILES = sorted((SAMPLES / "benchmarks").rglob("*.json.gz"))
SERVING_FILES = sorted((SAMPLES / "serving").rglob("*.json.gz"))
RECORDINGS = CPU_FILES + BENCHMARK_FILES + SERVING_FILES
GAUDI_CODES = {path.stem for path in (Path(__file__).parent / "rules" / "gaudi").glob("*.toml")}
# These benchmarks differ from fused_adamw or fused_clip_norm only in the ops of an optimizer.
SIMILAR = tuple(f"benchmarks/fused_{name}/" for name in ("adagrad", "ema", "lamb", "lars", "sgd"))
MAX_BYTES = 150_000
# A slash at the start of a path, unlike one between two words (torch/nn/modules) or in the name of a device.
ABSOLUTE_PATH = re.compile(r"(?<![\w.>)\]-])/(?!device:)\w|(?<!\w)[A-Za-z]:\\|~/")


@dataclass(frozen=True)
class Sample:
    """An entry of an expected.toml: codes that must appear, codes that may come first, and codes that must not appear.

    On a Gaudi sample, every finding of a Gaudi rule must be listed in ``findings`` or ``allowed``.
    """

    path: str
    findings: tuple[str, ...]
    first: tuple[str, ...] = ()
    quiet: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    healthy: bool = False
    simulated: bool = False


def sequence(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def listed() -> list[Sample]:
    entries = [entry for file in LISTS for entry in tomli.loads(file.read_text(encoding="utf-8"))["sample"]]
    return [Sample(**{key: sequence(value) for key, value in entry.items()}) for entry in entries]


@cache
def report_on(sample: str) -> Report:
    return analyze([str(SAMPLES / sample)])


@pytest.mark.parametrize("sample", listed(), ids=lambda sample: sample.path)
def test_a_sample_yields_its_findings(sample: Sample) -> None:
    """There are many similar traces of benchmarks, so the test checks only their findings, not a whole report. Rules
    that an entry does not name run only if the entry says which finding comes first.
    """
    if sample.path.startswith("benchmarks/"):
        listed_only = not sample.first or sample.path.startswith(SIMILAR)
        named = {*sample.findings, *sample.quiet, *sample.first}
        rules = [rule for rule in shipped_rules() if rule.code in named or not listed_only]
        with analysed(find_inputs([str(SAMPLES / sample.path)]), rules) as run:
            findings, inputs = run.outcome.findings, run.store.inputs_with_issues()
    else:
        report = report_on(sample.path)
        findings, inputs = report.findings, report.inputs
        assert list(breaches(report)) == []
    codes = [finding.code for finding in findings]
    warnings = [finding.message for finding in findings if finding.severity != "info"]

    assert [read.status for read in inputs] == ["ok"] * len(inputs)
    assert set(sample.findings) - set(codes) == set()
    assert set(sample.quiet) & set(codes) == set()
    if sample.path.startswith("gaudi"):
        assert GAUDI_CODES & set(codes) <= {*sample.findings, *sample.allowed}
    assert not sample.first or codes[0] in sample.first
    assert any("simulated" in issue.message for read in inputs for issue in read.issues) == sample.simulated
    assert not sample.healthy or warnings == []


def test_a_clock_offset_is_not_called_lateness(tmp_path: Path) -> None:
    write_with_late_clock(SAMPLES / "cpu" / "small_allreduce", tmp_path)

    assert sentences(analyze([str(tmp_path)])) == sentences(report_on("cpu/small_allreduce"))


@pytest.mark.parametrize("sample", ["cpu/loader_starved.json.gz", "cpu/small_allreduce"])
def test_a_report_matches_the_schema(sample: str) -> None:
    """Here and not in test_schemas.py, because the samples are analysed here."""
    from test_schemas import check

    check(json.loads(render_json(report_on(sample))), "report")


def test_every_recording_is_listed() -> None:
    paths = [SAMPLES / sample.path for sample in listed()]

    assert CPU_FILES
    assert SERVING_FILES
    assert BENCHMARK_FILES
    assert [file.name for file in RECORDINGS if file not in paths and file.parent not in paths] == []


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: str(file.relative_to(SAMPLES)))
def test_a_recording_is_small_has_steps_and_names_no_path_host_or_user(file: Path) -> None:
    packed = file.read_bytes()
    trace = json.loads(gzip.decompress(packed))
    steps = [event for event in trace["traceEvents"] if str(event["name"]).startswith("ProfilerStep#")]

    assert file in SERVING_FILES or (len(packed) < MAX_BYTES and len(steps) >= 3)
    assert [text for text in strings(trace) if ABSOLUTE_PATH.search(text)] == []
    assert trace.get("host_name", "host") == "host"
    assert packed[4:8] == bytes(4)  # no time stamp
    assert not packed[3] & 0b1000  # no file name


def strings(value: Any) -> Iterator[str]:
    """Yield all keys and strings anywhere in decoded JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings(item)


def test_the_search_for_paths_finds_paths() -> None:
    private = ["/home/me/a.py", "file:///srv/x", "at (/opt/x)", "C:\\Users\\me", "~/a.py", "x=/data/y"]
    public = ["torch/nn/modules/module.py(1782): _call_impl", "aten::div", "a / b", "compile_id=0/1"]

    assert [text for text in private + public if ABSOLUTE_PATH.search(text)] == private


def test_the_answer_of_a_server_names_throughput_phases_and_pauses() -> None:
    report = report_on("serving/long_prompts.json.gz")
    assert report.serving
    lines = list(serving_lines(report.serving))

    assert (report.run.kind, report.run.step_word) == ("serving", "iteration")
    assert lines[0] == "304 tokens/s generated, 2,929 prompt tokens/s over 1.02 s."
    assert lines[1] == "mixed     77.0 % of the time, 1 x: 789 ms, batch 17"
    assert "longest 789 ms, while 3,000 prompt tokens are computed" in lines[3]
    assert lines[4].startswith("A decode of 13.1 ms (mean): the model 69.7 %, sending the result 8.0 %")
    assert " step" not in report.verdict.headline
