"""A folder with a log, metrics pages and a client's result is one run, and its figures appear in the summary."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from events import x
from rich.console import Console

from perftool.engine.analysis import analyze
from perftool.engine.compare.diff import compare
from perftool.engine.compare.saved_report import read_saved
from perftool.model.report import Report
from perftool.reporters.diff import render_diff_text
from perftool.reporters.json import render_json
from perftool.reporters.serving import server_lines
from perftool.reporters.terminal.answer import print_answer

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
    # (125.4957 s - 0.0001 s) / 48 requests, from the two pages.
    assert numbers["queue_time_ms"] == pytest.approx(2614.49, abs=0.1)
    assert numbers["preemptions"] == 0


def test_without_a_client_the_page_and_the_log_give_the_numbers() -> None:
    folder = SAMPLES / "small_batch"
    report = analyze([str(folder / name) for name in ("server.log", "metrics_before.txt", "metrics_after.txt")])
    assert report.summary["ttft_ms"].value == pytest.approx(2649, abs=20)
    assert report.summary["ttft_p99_ms"].value is None
    # The mean over the log's intervals with requests. In the first and last interval, there were requests only part of
    # the time.
    assert report.summary["output_tokens_per_s"].value == pytest.approx(308, rel=0.15)


def test_the_rates_of_two_servers_in_one_log_add_up(tmp_path: Path) -> None:
    line = "INFO 11-23 15:00:00 [l.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: "
    load = "tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 5.0%\n"
    log = tmp_path / "server.log"
    log.write_text("".join(f"vllm-{n}  | {line}{rate} {load}" for n, rate in ((1, 10.0), (2, 30.0), (1, 20.0))))
    assert analyze([str(log)], []).summary["output_tokens_per_s"].value == 45


def test_the_answer_names_what_the_client_measured(slow: Report) -> None:
    (line,) = server_lines(slow)
    assert line.startswith(
        "Measured by the client or the server: 308.83 output tokens/s, 4.83 requests/s, 0 preemptions,"
    )
    assert "time to first token 2.66 s (P99 6.01 s)" in line
    assert line.endswith("waiting to start 2.61 s.")
    assert slow.verdict.detail.startswith("No trace was read, so no iteration times are known")


def test_iterations_in_the_log_give_the_time_of_a_decode() -> None:
    report = analyze([str(SAMPLES / "small_budget")])
    assert report.summary["decode_time_ms"].value == pytest.approx(5.08, abs=0.01)
    assert report.summary["decode_batch"].value == pytest.approx(2.88, abs=0.01)
    assert (
        next(iter(server_lines(report))) == "According to the log, a decode takes 5.08 ms (median); the batch is 2.88."
    )
    assert report.verdict.detail == "No trace was read: this report is based on the other files."


def test_the_answer_shows_the_evidence_of_a_first_finding_without_a_gain(slow: Report) -> None:
    answer = io.StringIO()
    print_answer(slow, Console(file=answer, width=200))
    (finding,) = slow.findings
    assert finding.gain is None
    assert f"       {finding.message}\n" in answer.getvalue()


def test_weights_in_the_log_and_the_memory_of_the_device_bound_a_decode(tmp_path: Path) -> None:
    decodes = [x("execute_context_0(0)_generation_8(8)", at, 9_000, "user_annotation") for at in (0, 10_000, 20_000)]
    kernel = x("gemm", 0, 9, "kernel", pid=0, tid=7, device=0, stream=7)
    card = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}
    (tmp_path / "rank0.pt.trace.json").write_text(json.dumps({**card, "traceEvents": [*decodes, kernel]}))
    log = tmp_path / "server.log"
    log.write_text(
        "(Worker pid=7) INFO 11-25 08:49:37 [gpu_model_runner.py:5150] "
        "Model loading took 15.6 GiB memory and 2.1 seconds\n"
    )
    # 15.6 GiB at 3.35 TB/s.
    read = "Reading all weights once (15.6 GiB, according to the log) takes 5.00 ms at the memory's bandwidth"
    least = f"{read}, 50.0 % of the median decode; keys and values are not counted."
    assert least in list(server_lines(analyze([str(tmp_path)], [])))
    log.write_text("")
    assert not any("weights" in line for line in server_lines(analyze([str(tmp_path)], [])))


def test_keys_and_values_count_if_annotations_state_the_contexts(tmp_path: Path) -> None:
    shape = "execute_8_context_0(sq0sk0sqsq0sqsk0)_generation_8(sq8sk80000sqsq8sqsk640000)"
    decodes = [x(shape, at, 9_000, "user_annotation") for at in (0, 10_000, 20_000)]
    kernel = x("gemm", 0, 9, "kernel", pid=0, tid=7, device=0, stream=7)
    card = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}
    (tmp_path / "rank0.pt.trace.json").write_text(json.dumps({**card, "traceEvents": [*decodes, kernel]}))
    prefix = "(EngineCore pid=7) INFO 11-25 08:49:37 [core.py:1] "
    lines = ["Model loading took 15.6 GiB memory and 2.1 seconds", "Available KV cache memory: 39.0 GiB",
             "GPU KV cache size: 400,000 tokens, Maximum concurrency for 4,096 tokens per request: 97.66x"]  # fmt: skip
    log = tmp_path / "server.log"
    log.write_text("".join(f"{prefix}{line}\n" for line in lines))
    # 80,000 tokens are 20 % of the cache, which is 7.8 GiB; reading them takes additional time at 3.35 TB/s.
    text = "and the keys and values of 80,000 tokens (at most 7.80 GiB) takes 7.50 ms at the memory's bandwidth, 75.0 %"
    assert any(text in line for line in server_lines(analyze([str(tmp_path)], [])))
    # The user sets fewer blocks than would fit.
    log.write_text(log.read_text() + f"{prefix}non-default args: {{'num_gpu_blocks_override': 96}}\n")
    assert any("not counted" in line for line in server_lines(analyze([str(tmp_path)], [])))


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


def test_a_slow_rank_of_a_server_counts(tmp_path: Path) -> None:
    for rank, apart in ((0, 10_000), (1, 20_000)):
        decodes = [x("execute_context_0(0)_generation_8(8)", at * apart, 9_000, "user_annotation") for at in range(4)]
        trace = {"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": decodes}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace))
    numbers = analyze([str(tmp_path)], ()).summary
    assert (numbers["decode_time_ms"].value, numbers["token_gap_p99_ms"].value) == (20.0, 20.0)
