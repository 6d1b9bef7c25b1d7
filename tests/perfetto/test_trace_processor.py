"""Reads annotated traces with Perfetto's own trace processor: the annotations are there, and the recording is
unchanged.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard
from builders.program import Run
from events import document, kernel, launch, loader, step, x
from trace_processor import Rows, needs_trace_processor, query

SAMPLES = Path(__file__).parents[2] / "sample_traces"
TRACES = ("cpu/profiler_overhead.json.gz", "gaudi2_unoptimised/rank0.pt.trace.json.gz")

OURS = "SELECT upid FROM process WHERE name GLOB 'perftool (rank*'"
# All slices except those that we added.
RECORDED = f"""
SELECT s.name, s.ts, s.dur, s.depth, extract_arg(s.arg_set_id, 'args.Ev Idx')
FROM slice AS s LEFT JOIN thread_track AS t ON t.id = s.track_id LEFT JOIN thread USING (utid)
WHERE upid IS NULL OR upid NOT IN ({OURS})
ORDER BY s.ts, s.dur DESC, s.name, s.depth
"""
# Errors and data loss, as counted by Perfetto.
PROBLEMS = "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0 ORDER BY name"
LANES = f"""
SELECT thread.name, s.name, s.ts, s.dur, s.depth, s.category
FROM slice AS s JOIN thread_track AS t ON t.id = s.track_id JOIN thread USING (utid)
WHERE upid IN ({OURS}) ORDER BY thread.tid, s.ts, s.depth
"""
COUNTERS = f"""
SELECT t.name, c.ts, c.value FROM counter AS c JOIN process_counter_track AS t ON t.id = c.track_id
WHERE t.upid IN ({OURS}) ORDER BY t.name, c.ts
"""
COUNTER_NAMES = {"device busy", "queue depth", "memory hpu:0 allocated bytes", "memory hpu:0 reserved bytes"}
FLOWS = f"""
SELECT count(*) FROM flow JOIN slice AS s ON s.id = flow.slice_out JOIN thread_track AS t ON t.id = s.track_id
JOIN thread USING (utid) WHERE upid NOT IN ({OURS})
"""
ARROWS = f"""
SELECT a.name, b.name FROM flow JOIN slice AS a ON a.id = flow.slice_out JOIN slice AS b ON b.id = flow.slice_in
JOIN thread_track AS t ON t.id = a.track_id JOIN thread USING (utid) WHERE upid IN ({OURS}) ORDER BY a.ts
"""

EVENTS = [
    step(1, 0, 1000), loader(10, 700), *launch(1, 750, 5, 760, 200, "one"),
    step(2, 1000, 1000), loader(1010, 700), *launch(2, 1750, 5, 1760, 200, "two"), x("aten::add", 1960, 20),
]  # fmt: skip


@pytest.fixture
def annotated(tmp_path: Path, run: Run):
    """Return a function that annotates a trace and returns the path of the copy."""

    def annotate(path: Path | str, *options: str) -> Path:
        out = tmp_path / "annotated.json.gz"
        assert run("annotate", str(path), "-o", str(out), *options) == 0, run.err
        return out

    return annotate


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(capfdbinary, monkeypatch)


@needs_trace_processor
def test_perfetto_shows_the_annotations(tmp_path: Path, annotated) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(document(EVENTS))
    lanes, counters, problems, arrows = query(annotated(path, "--select", "GAP102"), LANES, COUNTERS, PROBLEMS, ARROWS)
    assert (problems, arrows) == ([], [])
    ours = "habana_perf_tool"
    path = [row for row in lanes if str(row[0]).startswith("critical path: ")]
    finding, example, *idle = [row for row in lanes if row not in path]
    assert path
    assert (finding[0], str(finding[1])[:8], *finding[2:]) == (
        "GAP102 dataloader-wait", "GAP102: ", "10000", "700000", "0", ours
    )  # fmt: skip
    assert (example[0], example[2:]) == ("GAP102 dataloader-wait", ("1010000", "700000", "0", ours))
    assert {row[0] for row in idle} == {"idle time by cause"}
    # The whole window, except for the two intervals during which the device works.
    assert sum(int(str(row[3])) for row in idle) == 2_000_000 - 2 * 200_000
    assert counters == [
        *(("device busy", ts, value) for ts, value in (("0", 0), ("760000", 1), ("960000", 0), ("1760000", 1),
                                                       ("1960000", 0))),
        *(("queue depth", ts, value) for ts, value in (("750000", 1), ("760000", 0), ("1750000", 1), ("1760000", 0))),
    ]  # fmt: skip


def unchanged(original: Path | str, copy: Path) -> Rows:
    """Check that ``copy`` shows the recording as ``original`` does, and return the lanes that we added."""
    before = query(original, RECORDED, PROBLEMS, FLOWS)
    *after, lanes, counters, arrows = query(copy, RECORDED, PROBLEMS, FLOWS, LANES, COUNTERS, ARROWS)
    assert after == before
    assert len(before[0]) > 10
    assert all(row[5] == "habana_perf_tool" for row in lanes)
    assert {str(row[0]) for row in counters} <= COUNTER_NAMES
    # On the Gaudi, the critical path alternates between host and device.
    assert len(arrows) > 100 or "gaudi" not in str(original)
    return lanes


@needs_trace_processor
@pytest.mark.parametrize("sample", TRACES)
def test_samples_are_unchanged(sample: str, annotated) -> None:
    unchanged(SAMPLES / sample, annotated(SAMPLES / sample))


@needs_trace_processor
def test_a_trace_compressed_with_zstandard_is_unchanged(tmp_path: Path, annotated) -> None:
    plain, packed = tmp_path / "trace.json", tmp_path / "packed"
    plain.write_bytes(document([*EVENTS, *(kernel("k", 5000 + at, 1) for at in range(9))]))
    packed.write_bytes(zstandard.ZstdCompressor().compress(plain.read_bytes()))
    assert unchanged(plain, annotated(packed, "--select", "GAP102"))


@needs_trace_processor
@pytest.mark.parametrize("cut", [0, 200])
def test_a_damaged_trace_opens(cut: int, tmp_path: Path, annotated) -> None:
    data = document(EVENTS).replace(b'"aten::add"', b'"aten::"add\x01"')
    path = tmp_path / "damaged.json"
    path.write_bytes(data[: len(data) - cut])
    names, lanes, problems = query(annotated(path, "--select", "GAP102"), RECORDED, LANES, PROBLEMS)
    assert problems == []
    assert {str(row[0]) for row in names} >= {"ProfilerStep#1", "one", "ProfilerStep#2"}
    assert len(lanes) > 2


# The content of the processes of one rank, regardless of times.
SHOWN = """
SELECT s.name, s.dur, s.depth, count(*) FROM slice AS s JOIN thread_track AS t ON t.id = s.track_id
JOIN thread USING (utid) JOIN process AS p USING (upid) WHERE p.name {} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""


@needs_trace_processor
def test_ranks_are_shown_apart_in_one_timeline(tmp_path: Path, annotated) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    flow = {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 1, "pid": 1, "tid": 1, "ts": 751}
    arrows = [flow, {**flow, "ph": "f", "bp": "e", "pid": 0, "tid": 7, "ts": 760}]
    for rank in (0, 1):
        named = [{"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": "p"}} for pid in (0, 1)]
        events = [*named, *EVENTS, *arrows, x(f"only {rank}", 1970, 5)]
        (folder / f"rank{rank}.json").write_bytes(document(events, distributedInfo={"rank": rank, "world_size": 2}))
    out = annotated(folder, "--select", "GAP102")
    problems, flows, *ranks = query(
        out, PROBLEMS, "SELECT count(*) FROM flow", *(SHOWN.format(f"GLOB 'rank {rank}: *'") for rank in (0, 1))
    )
    assert problems == []
    assert flows == [("2",)]
    alone = query(folder / "rank0.json", SHOWN.format("IN ('p')"))[0]
    assert ranks[0] == alone
    assert [row[0] for row in ranks[1] if row not in alone] == ["only 1"]
