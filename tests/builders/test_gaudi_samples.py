"""The Gaudi samples match the output of their script, and the files of a run agree with each other."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from builders.intervals import union_ns

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SAMPLES = Path(__file__).parents[2] / "sample_traces"


@pytest.fixture(scope="module")
def regenerated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples")
    subprocess.run([sys.executable, str(SAMPLES / "make_gaudi_samples.py"), str(folder)], check=True)
    return folder


def content(path: Path) -> bytes:
    # Compressed bytes depend on the installed zlib; the content does not.
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def test_samples_regenerate_byte_for_byte(regenerated):
    made = sorted(path.relative_to(regenerated) for path in regenerated.rglob("*") if path.is_file())
    assert len(made) == 7
    assert [name for name in made if content(regenerated / name) != content(SAMPLES / name)] == []


def test_compressed_samples_carry_no_time_stamp(regenerated):
    stamps = {path.name: path.read_bytes()[4:8] for path in regenerated.rglob("*.gz")}
    assert set(stamps.values()) == {bytes(4)}


def test_readme_lists_the_expected_findings():
    rows = [row.split("|") for row in (SAMPLES / "README.md").read_text().splitlines() if row.startswith("| `")]
    listed = {row[1].strip(" `/"): re.findall(r"[A-Z]{3}\d{3}", row[-2]) for row in rows}
    expected = tomllib.loads((SAMPLES / "expected.toml").read_text())["sample"]
    assert listed == {sample["path"]: sample["findings"] for sample in expected}


def load(name: str) -> dict:
    return json.loads(gzip.decompress((SAMPLES / name).read_bytes()))


@pytest.mark.parametrize(
    "name",
    [
        "gaudi2_unoptimised/rank0.pt.trace.json.gz",
        "gaudi2_optimised/rank0.pt.trace.json.gz",
        "gaudi3_gen_c.json.gz",
    ],
)
def test_samples_say_that_they_are_hand_made_and_run_one_kernel_per_lane_at_a_time(name):
    trace = load(name)
    assert trace["handMade"] is True
    lanes = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and event["pid"] == 0:
            start = round(event["ts"] * 1000)
            # Two monitors of a lane may report the same work.
            lanes[event["tid"], event["args"].get("HW event name")].append((start, start + round(event["dur"] * 1000)))
    # Near 1.5e12 us, a double has a resolution of 0.25 ns.
    assert all(sum(e - s for s, e in lane) - union_ns(lane) <= len(lane) for lane in lanes.values())
    assert sum(map(len, lanes.values())) > 100


def test_trace_log_and_metrics_of_the_unoptimised_run_agree():
    events = load("gaudi2_unoptimised/rank0.pt.trace.json.gz")["traceEvents"]
    folder = SAMPLES / "gaudi2_unoptimised"
    exit_records = json.loads((folder / "metrics-rank0.json").read_text())[-3:]
    statistics = {record["metric_name"]: record["statistics"] for record in exit_records}
    log = (folder / "console.log").read_text().splitlines()
    cuts = Counter(line.split("due to ")[1] for line in log if "step marker due to" in line)
    table = log[next(i for i, line in enumerate(log) if "CPU Fallback stats:" in line) + 1 :]
    fallbacks = {op: int(count) for count, op in (row.split("\t") for row in table)}
    in_trace = Counter(event["name"] for event in events if event["ph"] in "XB")
    assert fallbacks == statistics["cpu_fallback"]["FallbackOps"] == {"aten::digamma": 14, "aten::nonzero": 7}
    assert {op: cuts[f"cpu fallback {op}"] for op in fallbacks} == fallbacks
    assert in_trace["cpu_fallback"] * 7 == sum(fallbacks.values()) * 3
    assert in_trace["SyncTensorsGraphInternal"] * 7 == sum(cuts.values()) * 3
    assert in_trace["aten::item"] * 7 == cuts["local scalar"] * 3
    late = [event["args"]["recipeName"] for event in events if event["name"] == "compileGraph"]
    assert late == [name for name, _ in statistics["graph_compilation"]["recipe"][-2:]]


def test_every_launch_precedes_its_work_and_every_wait_outlasts_the_work_before_it():
    events = load("gaudi2_unoptimised/rank0.pt.trace.json.gz")["traceEvents"]
    launched: dict[int, float] = {}
    for event in events:
        if event["name"].startswith("enqueueWithExternalEvents"):
            recipe = event["args"]["recipeId"]
            launched[recipe] = min(event["ts"], launched.get(recipe, event["ts"]))
    kernels = [event for event in events if event.get("cat") == "Kernel"]
    assert all(event["ts"] > launched[event["args"]["recipeId"]] for event in kernels)
    wakes = [event["ts"] for event in events if event["name"] == "synEventSynchronize" and event["ph"] == "E"]
    ends = {event["ts"] + event["dur"] for event in kernels}
    assert max(wakes) > max(ends)
