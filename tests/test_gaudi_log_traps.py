"""Awkward and damaged logs and metrics files, alone and with a trace. Nothing may be lost or counted twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from builders import trap_logs, traps
from builders.gaudi import GaudiTrace
from builders.trap_logs import LogTrap

from perftool.engine.analysis import analysed, analyze
from perftool.errors import InputError
from perftool.model.report import Report
from perftool.readers.discover import find_inputs

LOGS: Mapping[str, Callable[[], LogTrap]] = {
    trap.__name__: trap
    for trap in (
        trap_logs.calls_and_table,
        trap_logs.calls_without_table,
        trap_logs.duplicated_table,
        trap_logs.interleaved_ranks,
        trap_logs.coloured_windows_console,
        trap_logs.wide_encoding,
    )
}


def rows(folder: Path, sql: str, *, log: bytes | None = None, metrics: bytes | None = None, trace: bytes | None = None):
    """Return the rows of ``sql`` for inputs with the given bytes."""
    files = []
    for name, data in (("run.log", log), ("metrics-rank0.json", metrics)):
        if data is not None:
            (folder / name).write_bytes(data)
            files.append(str(folder / name))
    traced = []
    if trace is not None:
        (folder / "trace.pt.trace.json").write_bytes(trace)
        traced.append(str(folder / "trace.pt.trace.json"))
    with analysed(find_inputs(traced, files)) as run:
        # The query runs in this process, like the query of a shipped rule.
        return run.whole.timed(sql, {}, 60)[1]


@pytest.mark.parametrize("number", range(4), ids=["F1", "F2", "F3", "F4"])
def test_every_shape_of_the_table(number: int, tmp_path: Path) -> None:
    data, facts = trap_logs.every_table_shape()[number]
    assert dict(rows(tmp_path, "SELECT op, count FROM fallbacks", log=data)) == facts.fallbacks


@pytest.mark.parametrize("name", LOGS)
def test_fallbacks_of_awkward_logs(name: str, tmp_path: Path) -> None:
    data, facts = LOGS[name]()
    assert dict(rows(tmp_path, "SELECT op, count FROM fallbacks", log=data)) == facts.fallbacks


def test_evictions_with_and_without_the_space(tmp_path: Path) -> None:
    data, facts = trap_logs.evictions()
    found = rows(tmp_path, "SELECT name FROM log_events WHERE kind = 'recipe_evicted' ORDER BY line", log=data)
    assert tuple(name for (name,) in found) == facts.evicted


def test_the_inverted_warning_of_release_1_19_is_ignored(tmp_path: Path) -> None:
    line = "[CACHEFILE] Recipes total size still exceeded the limit after eviction: {}/{}.\n"
    text = (line.format(900, 1000) + line.format(1100, 1000)).encode()
    sql = "SELECT count, value, limit_value FROM log_events WHERE kind = 'disk_cache_over_limit'"
    assert rows(tmp_path, sql, log=text) == [(1, 1100.0, 1000.0)]


def test_half_written_metrics_count_up_to_the_last_complete_record(tmp_path: Path) -> None:
    data, facts = trap_logs.half_written_metrics()
    compiled = rows(tmp_path, "SELECT recipe, dur FROM compilations ORDER BY recipe", metrics=data)
    assert len(compiled) == facts.compilations
    assert compiled == [("r_0", 900_000), ("r_1", 800_000)]
    assert dict(rows(tmp_path, "SELECT op, count FROM fallbacks", metrics=data)) == facts.fallbacks
    issues = dict(rows(tmp_path, "SELECT kind, count FROM input_issues", metrics=data))
    assert issues == {"damaged record": facts.dropped_records, "unterminated": 1}


def test_a_numbered_metrics_file_is_found_beside_the_trace(tmp_path: Path) -> None:
    (tmp_path / "metrics-rank0.json.1").write_bytes(trap_logs.half_written_metrics()[0])
    (tmp_path / "run.pt.trace.json").write_bytes(traps.graph_replay()[0])
    inputs = find_inputs([str(tmp_path / "run.pt.trace.json")])
    assert [Path(text).name for text in inputs.texts] == ["metrics-rank0.json.1"]


def test_eager_metrics_without_compilations_leave_the_trace_its_own(tmp_path: Path) -> None:
    metrics = b'[{"metric_name": "graph_compilation", "statistics": {"TotalNumber": 0, "TotalTime": 0, "AvgTime": 0}}]'
    trace = traps.first_step_is_compilation()[0]
    assert rows(tmp_path, "SELECT source FROM compilations", metrics=metrics, trace=trace) == [("trace",)]


def test_log_metrics_and_trace_of_one_call_are_one_fallback(tmp_path: Path) -> None:
    log = b"CPU fallback digamma : self=HPUBFloat16Type\nCPU Fallback stats:\n1\taten::digamma\n"
    statistics = b'{"TotalNumber": 1, "FallbackOps": {"aten::digamma": 1}}'
    metrics = b'[{"metric_name": "cpu_fallback", "statistics": ' + statistics + b"}]"
    sql = "SELECT op, count, traced, time_ns, dtypes FROM fallbacks"
    found = rows(tmp_path, sql, log=log, metrics=metrics, trace=traps.cpu_fallback()[0])
    assert found == [("aten::digamma", 1, 1, 200_000, "bfloat16")]


def test_overloads_of_an_op_share_its_traced_time_once(tmp_path: Path) -> None:
    trace = GaudiTrace("B")
    trace.step(4, 1000, 1000)
    trace.host("aten::index", 1100, 200)
    trace.bridge("cpu_fallback", 1102, 196)
    log = b"CPU Fallback stats:\n5\taten::index.Tensor\n2\taten::index.Tensor_out\n"
    sql = "SELECT op, count, time_ns FROM fallbacks ORDER BY op"
    found = rows(tmp_path, sql, log=log, trace=trace.to_bytes())
    assert found == [("aten::index.Tensor", 5, 200_000), ("aten::index.Tensor_out", 2, None)]


@pytest.mark.parametrize("line", [
    "Tensorboard callback for HPU hardware profiling disabled. To enable set \"HABANA_PROFILE\"",
    "synProfilerStart failed",
    "No profiler entries",
])  # fmt: skip
def test_a_log_says_why_the_device_is_missing(line: str, tmp_path: Path) -> None:
    sql = "SELECT kind, count FROM log_events"
    found = rows(tmp_path, sql, log=f"{line}\n".encode(), trace=traps.no_device_plane()[0])
    assert found == [("no_device_trace", 1)]


def test_an_hltv_file_that_is_not_an_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "default_profiling.hltv"
    path.write_bytes(b"\x00\x01\x02HLTV")
    with pytest.raises(InputError, match="neither a zip nor a gzipped tar"):
        analyze([str(path)])


def test_findings_of_all_inputs_together_count_once(tmp_path: Path) -> None:
    (tmp_path / "trace.pt.trace.json").write_bytes(traps.cpu_fallback()[0])
    (tmp_path / "run.log").write_bytes(trap_logs.calls_and_table()[0])
    found = report_of(tmp_path)
    assert [(f.subject, f.evidence["count"], f.evidence["in_steps"]) for f in found.findings if f.code == "FBK101"] == [
        ("aten::digamma", 2, 1)
    ]
    assert found.summary["fallback_ops"].value == 1


def report_of(folder: Path) -> Report:
    return analyze([str(folder)])
