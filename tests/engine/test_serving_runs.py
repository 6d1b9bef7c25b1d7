"""A folder with log, metrics pages and client result is one run, whose numbers reach the summary and what uses it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perftool.engine.analysis import analyze
from perftool.engine.compare.diff import compare
from perftool.engine.compare.saved_report import read_saved
from perftool.model.report import Report
from perftool.reporters.diff import render_diff_text
from perftool.reporters.json import render_json
from perftool.reporters.serving import server_lines

SAMPLES = Path(__file__).parents[2] / "sample_traces" / "serving"


@pytest.fixture(scope="module")
def slow() -> Report:
    return analyze([str(SAMPLES / "small_batch")])


def test_numbers_of_the_client_and_of_the_server(slow: Report) -> None:
    numbers = {name: metric.value for name, metric in slow.summary.items() if metric.value is not None}
    assert numbers["output_tokens_per_s"] == pytest.approx(308.8348)
    assert numbers["requests_per_s"] == pytest.approx(4.8255, abs=1e-4)
    assert numbers["ttft_ms"] == pytest.approx(2656.175)
    assert numbers["ttft_p99_ms"] == pytest.approx(6009.528)
    assert numbers["itl_p99_ms"] == pytest.approx(38.0526, abs=1e-4)
    # (125.4957 s - 0.0001 s) in 48 requests, between the two pages.
    assert numbers["queue_time_ms"] == pytest.approx(2614.49, abs=0.1)
    assert numbers["preemptions"] == 0


def test_without_a_client_the_page_and_the_log_give_what_they_know() -> None:
    folder = SAMPLES / "small_batch"
    report = analyze([str(folder / name) for name in ("server.log", "metrics_before.txt", "metrics_after.txt")])
    assert report.summary["ttft_ms"].value == pytest.approx(2649, abs=20)
    assert report.summary["ttft_p99_ms"].value is None
    # The mean of the intervals in which requests ran: the load did not fill the first and the last.
    assert report.summary["output_tokens_per_s"].value == pytest.approx(308, rel=0.15)


def test_the_answer_names_what_the_client_measured(slow: Report) -> None:
    (line,) = server_lines(slow)
    assert line.startswith(
        "Measured by the client or the server: 308.83 output tokens/s, 4.83 requests/s, 0 preemptions,"
    )
    assert "time to first token 2.66 s (P99 6.01 s)" in line
    assert line.endswith("waiting to start 2.61 s.")
    assert slow.verdict.detail.startswith("No trace was read, so no times of iterations are known")


def test_a_comparison_has_the_numbers_of_both(slow: Report, tmp_path: Path) -> None:
    saved = tmp_path / "base.json"
    saved.write_bytes(render_json(slow))
    base = read_saved(str(saved))
    assert base is not None
    assert base.served["ttft_ms"] == pytest.approx(2656.175)
    better = replace(base, served={**base.served, "ttft_ms": base.served["ttft_ms"] / 2, "queue_time_ms": 0.0})
    changes = {change.name: change.ratio for change in compare(base, better).served}
    assert (changes["ttft_ms"], changes["queue_time_ms"], changes["preemptions"]) == (-0.5, -1, None)
    text = render_diff_text(compare(base, better)).decode()
    assert "time to first token (mean)          2.66 s ->     1.33 s    -50.0 %" in text


def test_a_trace_of_training_has_none_of_these_numbers() -> None:
    report = analyze([str(SAMPLES.parent / "gaudi3_gen_c.json.gz")])
    assert report.summary["ttft_ms"].value is None
    assert report.summary["preemptions"].value is None
