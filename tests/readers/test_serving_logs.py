"""Server logs: statistics, buckets, settings and results printed by clients. The lines come from real runs or from the
source code of the servers.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

import pytest

from perftool.model.records import LogReading
from perftool.model.serving import Bucket, LoggedIteration, ServingInterval
from perftool.readers.logs import console_log

V1 = "(APIServer pid=13181) INFO 11-23 14:13:13 [loggers.py:335] Engine 000: "
V0 = "INFO 09-17 06:30:09 metrics.py:455] "
S = 1_000_000_000
LOAD = (
    f"{V1}Avg prompt throughput: 8.0 tokens/s, Avg generation throughput: 9.0 tokens/s, Running: 3 reqs, "
    "Waiting: 0 reqs, GPU KV cache usage: 1.5%, Prefix cache hit rate: 2.5%"
)
SGLANG = (
    "[2026-11-23 14:08:20 TP0] Decode batch, #running-req: 4, #token: 580, token usage: 0.06, cuda graph: True, "
    "gen throughput (token/s): 95.50, #queue-req: 7, "
)
DRAFTS = (
    "INFO 11-23 14:13:13 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 1.25, Accepted: 10 tokens, "
    "Drafted: 40 tokens, Avg Draft acceptance rate: 25.0%"
)
# 23 November 1972: the lines state no year.
DAY = 91_324_800 * S


def _read(*lines: str) -> LogReading:
    return console_log.read("".join(f"{line}\n" for line in lines).encode())


def _interval(text: str) -> ServingInterval:
    (interval,) = _read(text).intervals
    return interval


def test_statistics_of_the_v1_engine() -> None:
    found = _interval(
        f"{V1}Avg prompt throughput: 1011.5 tokens/s, Avg generation throughput: 153.1 tokens/s, Running: 16 reqs, "
        "Waiting: 3 reqs, CPU KV cache usage: 12.5%, Prefix cache hit rate: 50.0%, External prefix cache hit rate: 3.0%"
    )
    assert found.time_ns == DAY + 51193 * S
    assert found == ServingInterval(
        "Engine 000", found.time_ns, 1011.5, 153.1, 16, 3, 0.125, 0.5, process="pid=13181", line=1
    )


def test_statistics_of_the_v0_engine() -> None:
    found = _interval(
        f"{V0}Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 29.2 tokens/s, Running: 1 reqs, "
        "Swapped: 0 reqs, Pending: 2 reqs, GPU KV cache usage: 0.2%, CPU KV cache usage: 7.0%."
    )
    assert (found.running, found.waiting, found.prefix_hit_ratio) == (1, 2, None)
    assert found.cache_ratio == pytest.approx(0.002)


@pytest.mark.parametrize("begin", ["Decode batch.", "Decode batch,", "Decode batch [40],"])
def test_statistics_of_sglang(begin: str) -> None:
    found = _interval(
        f"[2026-11-23 14:08:20 TP0] {begin} #running-req: 4, #token: 580, token usage: 0.06, cuda graph: True, "
        "gen throughput (token/s): 95.50, #queue-req: 7, "
    )
    assert (found.generation_tokens_per_s, found.running, found.waiting, found.cache_ratio) == (95.5, 4, 7, 0.06)


@pytest.mark.parametrize(
    "line",
    ["[2026-11-23 14:08:20 TP0] Decode: #running-req: 4, gen throughput (token/s): 95.50, #queue-req: 7, ",
     "INFO 11-23 14:08:20 [l.py:1] Engine 000 | generation throughput 95.5 | running 4"],
)  # fmt: skip
def test_statistics_in_an_unknown_form_are_reported(line: str) -> None:
    assert [issue.kind for issue in _read(line).issues] == ["unknown statistics"]
    # The known statistics may be only some of them.
    assert [issue.kind for issue in _read(LOAD, line).issues] == ["unknown statistics"]
    assert _read(LOAD).issues == ()


def test_statistics_without_a_number_give_no_interval() -> None:
    found = console_log.read(b"INFO Avg prompt throughput: nan tokens/s\n")
    assert (found.intervals, [issue.kind for issue in found.issues]) == ((), ["bad statistics"])


_ITERATION = (
    f"{V1}Iteration(23): 2 context requests, 47 context tokens, 1 generation requests, 1 generation tokens, iteration "
    "elapsed time: 3.41 ms, CPU KV cache usage: 0.2%"
)
_TOTALS = (
    "INFO 10-16 19:05:47 metrics.py:367] Speculative metrics: Draft acceptance rate: 0.642, System efficiency: 0.598, "
    "Number of speculative tokens: 3, Number of accepted tokens: 5, Number of draft tokens: 9, Number of emitted "
    "tokens: 7."
)


@pytest.mark.parametrize(
    ("line", "old", "new"),
    [
        *((LOAD, ": 3 reqs", f": {value} reqs") for value in ("nan", "3.0", "\0", "-3", "3e0", "", "0x3")),
        (LOAD, "Running: 3 reqs, ", ""), (LOAD, "Running: 3 reqs", "Running: 3"), (LOAD, "Waiting", "Waitinq"),
        (LOAD, "9.0 tokens/s", "nan tokens/s"), (LOAD, "9.0 tokens/s", "9,0 tokens/s"),
        (LOAD, "8.0 tokens/s", "1,008.0 tokens/s"), (LOAD, "prompt throughput", "pr\0mpt throughput"),
        (LOAD, "1.5%", "inf%"), (LOAD, "2.5%", "2..5%"), (LOAD, "Waiting", "Preemptions: ?, Waiting"),
        (LOAD, "Prefix cache hit rate: 2.5%", LOAD),
        (SGLANG, "95.50", "95,50"), (SGLANG, "95.50", "nan"), (SGLANG, "#queue-req: 7", "#queue-req: 7.5"),
        (SGLANG, "#running-req: 4", "#running-req: None"), (SGLANG, "0.06", "-"), (SGLANG, ", #queue-req: 7, ", ""),
        (DRAFTS, "10 tokens", "ten tokens"), (DRAFTS, "Drafted: 40 tokens, ", ""), (DRAFTS, "1.25", "nan"),
        (DRAFTS, "Accepted: 10", "Accepted: 41"),
        (_TOTALS, "draft tokens: 9", "draft tokens: nan"), (_TOTALS, "speculative tokens: 3", "speculative tokens: 0"),
        *((_ITERATION, "3.41", value) for value in ("5000,00", "5e3", "nan", "")),
        (_ITERATION, "47 context tokens", "47.5 context tokens"), (_ITERATION, ", CPU KV", f"{_ITERATION}, CPU KV"),
    ],
)  # fmt: skip
def test_a_value_of_statistics_that_is_no_number_is_reported(line: str, old: str, new: str) -> None:
    assert _read(LOAD, line).issues == ()
    assert line.count(old) == 1
    assert {issue.kind for issue in _read(LOAD, line.replace(old, new)).issues} == {"bad statistics"}


@pytest.mark.parametrize(
    "end",
    ["", ", #cache_miss: 3", ", accept len: 2.50", ", #prealloc-req: 0, "],
)
def test_other_values_may_follow(end: str) -> None:
    assert _read(SGLANG.rstrip(", ") + end).issues == ()
    assert _read(LOAD.partition(", GPU")[0] + " ").issues == ()


def test_drafts_belong_to_the_interval_before() -> None:
    (found,) = _read(
        LOAD.partition(") ")[2],
        "INFO 11-23 14:13:13 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 1.25, Accepted throughput: "
        "1.00 tokens/s, Drafted throughput: 4.00 tokens/s, Accepted: 10 tokens, Drafted: 40 tokens, Per-position "
        "acceptance rate: 0.200, 0.050, Avg Draft acceptance rate: 25.0%",
    ).intervals
    assert (found.accepted, found.drafted, found.acceptance_length) == (10, 40, 1.25)


def test_servers_in_one_log_have_their_own_lines() -> None:
    def lines(label: str, second: int, drafted: int) -> tuple[str, ...]:
        return tuple(f"{label}{line}".replace("14:13:13", f"14:13:{second}").replace(": 40", f": {drafted}")
                     for line in (LOAD.partition(") ")[2], DRAFTS))  # fmt: skip

    first, second, third = lines("vllm-1  | ", 10, 40), lines("vllm-2  | ", 15, 400), lines("vllm-1  | ", 20, 30)
    found = _read(first[0], second[0], first[1], second[1], *third).intervals
    assert [(one.process, one.since_ns, one.drafted) for one in found] == [
        ("vllm-1", None, 40), ("vllm-2", None, 400), ("vllm-1", 10 * S, 30),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("starting", "running", "kinds"),
    [
        ("vllm-2  | ", ["vllm-1 pid=13181"] * 2 + ["vllm-2 pid=13181"], []),
        ("vllm-1  | ", ["vllm-1 pid=13181", "vllm-2 pid=13181"], ["not used"]),
        ("", ["vllm-1 pid=13181", "vllm-2 pid=13181"], ["not used"]),
        ("[pod/vllm-1/server] ", ["vllm-1 pid=13181"] * 2 + ["vllm-2 pid=13181"], []),
    ],
)
def test_the_start_of_another_server_is_no_restart(starting: str, running: list[str], kinds: list[str]) -> None:
    preempted = (
        "vllm-1  | INFO 11-23 14:08:20 metrics.py:455] Sequence group 1 is preempted by PreemptionMode.SWAP mode."
    )
    found = _read(f"vllm-1  | {LOAD}", preempted, f"{starting}{_START}", f"vllm-1  | {LOAD}", f"vllm-2  | {LOAD}")
    assert [one.process for one in found.intervals] == running
    assert [one.kind for one in found.issues] == kinds
    assert len(found.events) == (not kinds)


def test_each_pod_has_its_own_server() -> None:
    """Server 17 and the later ones share one, of which any start is a restart."""
    for count, kinds in ((16, []), (18, ["not used"])):
        lines = [f"[pod/vllm-{at}/server] {line}" for at in range(count) for line in (_START, LOAD)]
        found = _read(*lines)
        assert [one.kind for one in found.issues] == kinds


def test_drafts_of_unknown_statistics_have_their_own_row() -> None:
    found = _read(DRAFTS, LOAD, LOAD, DRAFTS.replace("INFO", V1.partition("INFO")[0] + "INFO"), DRAFTS).intervals
    assert [(one.running, one.drafted) for one in found] == [(None, 40), (3, None), (3, 40), (None, 40)]


def test_drafts_of_the_v0_engine_count_from_its_start() -> None:
    def lines(accepted: int, drafted: int, emitted: int) -> tuple[str, str]:
        return (
            f"{V0}Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 75.3 tokens/s, Running: 6 reqs",
            "INFO 10-16 19:05:47 metrics.py:367] Speculative metrics: Draft acceptance rate: 0.642, System efficiency: "
            f"0.598, Number of speculative tokens: 3, Number of accepted tokens: {accepted}, Number of draft tokens: "
            f"{drafted}, Number of emitted tokens: {emitted}.",
        )

    found = _read(*lines(8547, 13311, 10616), *lines(8647, 13611, 10816), *lines(8647, 13611, 10816), *lines(1, 30, 11))
    intervals = [(one.drafted, one.accepted, one.acceptance_length) for one in found.intervals]
    assert intervals[0] == (13311, 6179, pytest.approx(2.393, abs=1e-3))
    assert intervals[1:] == [(300, 100, 2.0), (None, None, None), (30, 1, 1.1)]


def test_drafts_with_an_efficiency_of_nan_are_not_totals() -> None:
    (found,) = _read(
        f"{V0}Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 75.3 tokens/s, Running: 6 reqs",
        "INFO 04-01 10:00:00 [metrics.py:52] Speculative metrics: Draft acceptance rate: 0.500, System efficiency: "
        "nan, Number of speculative tokens: 2, Number of accepted tokens: 10, Number of draft tokens: 20, Number of "
        "emitted tokens: 21.",
    ).intervals
    assert found.drafted is None


@pytest.mark.parametrize(("tokens", "ms"), [("00", "7.00"), ("3", "999999999999999.00")])
def test_impossible_numbers_in_a_log_are_ignored(tokens: str, ms: str) -> None:
    """Zero tokens would lead to a division by zero, and the long time does not fit into 64-bit nanoseconds."""
    found = _read(
        f"{V0}Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 75.3 tokens/s, Running: 6 reqs",
        "INFO 10-16 19:05:47 metrics.py:367] Speculative metrics: Draft acceptance rate: 0.642, System efficiency: "
        f"0.598, Number of speculative tokens: {tokens}, Number of accepted tokens: 3, Number of draft tokens: 3, "
        "Number of emitted tokens: 4.",
        "INFO 10-16 19:05:48 [loggers.py:199] Engine 000: Iteration(1): 1 context requests, 48 context tokens, "
        f"0 generation requests, 0 generation tokens, iteration elapsed time: {ms} ms, CPU KV cache usage: 0.1%",
    )
    assert [one.drafted for one in found.intervals] == [None if tokens == "00" else 3]
    assert [one.dur_ns for one in found.iterations] == ([7_000_000] if ms == "7.00" else [])


def test_iterations_of_the_v1_engine() -> None:
    details = (
        "0 generation requests, 0 generation tokens, iteration elapsed time: 0.10 ms (dummy), GPU KV cache usage: 0.0%"
    )
    found = _read(
        f"{V1}Iteration(23): 2 context requests, 47 context tokens, 1 generation requests, 1 generation tokens, "
        "iteration elapsed time: 3.41 ms, CPU KV cache usage: 0.2%",
        f"{V1}Iteration(24): 0 context requests, 0 context tokens, {details}",
    )
    assert found.iterations == (LoggedIteration("Engine 000", 23, 2, 47, 1, 1, 3_410_000, line=1),)


def test_times_grow_past_midnight() -> None:
    lines = [f"INFO {at} [l.py:1] Avg prompt throughput: 1.0 tokens/s" for at in ("11-23 23:59:55", "11-24 00:00:05")]
    first, second = _read(*lines).intervals
    assert (second.time_ns or 0) - (first.time_ns or 0) == 10 * S
    assert (first.since_ns, second.since_ns) == (None, 10 * S)


@pytest.mark.parametrize(
    ("text", "bucket"),
    [
        ("Configuration: ('prompt', 4, 1024, 0) was not warmed-up!", Bucket("prompt", 4, 1024, 0, "missed", line=1)),
        ("Configuration: ('prompt', 16, 896) was not warmed-up!", Bucket("prompt", 16, 896, None, "missed", line=1)),
        ("Configuration: (decode, 16, 200) was not warmed-up!", Bucket("decode", 16, None, 200, "missed", line=1)),
        (
            "Configuration: rank (0, prompt, 1, 36864, 0) was not warmed-up!",
            Bucket("prompt", 1, 36864, 0, "missed", line=1),
        ),
        (
            "Decode bucket for (33, 1, 500) was not prepared. Adding new bucket: (34, 1, 512)",
            Bucket("decode", 34, 1, 512, "added", line=1),
        ),
        (
            "[Warmup][Decode][3/7] batch_size:8 query_len:1 num_blocks:128 free_mem:15.26 GiB",
            Bucket("decode", 8, 1, 128, "warmed", line=1),
        ),
        (
            "[Warmup][Graph/Prompt][1/9] batch_size:2 seq_len:128 free_mem:1 GiB",
            Bucket("prompt", 2, 128, None, "warmed", line=1),
        ),
    ],
)
def test_buckets(text: str, bucket: Bucket) -> None:
    assert _read(f"WARNING 09-17 06:30:09 [hpu_model_runner.py:3643] {text}").buckets == (bucket,)


def test_a_list_of_buckets() -> None:
    found = _read(
        "INFO 09-17 06:30:09 [c.py:99] Generated 2 decode buckets [bs, query, num_blocks]: [(1, 1, 128), (2, 1, 128)]"
    )
    assert [(one.batch, one.query, one.blocks, one.origin) for one in found.buckets] == [
        (1, 1, 128, "warmed"), (2, 1, 128, "warmed"),
    ]  # fmt: skip


def test_a_warmed_up_shape_does_not_set_the_batch_size() -> None:
    assert not _read("[Warmup][Decode][3/7] batch_size:8 query_len:1 num_blocks:128 free_mem:15.26 GiB").events


def test_events_and_settings() -> None:
    found = _read(
        f"{V0}Sequence group cmpl-1 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache "
        "space. This can affect the end-to-end performance. total_num_cumulative_preemption=51",
        "INFO 09-17 06:30:09 [exponential.py:29] Using Exponential Strategy - Your configuration "
        "VLLM_PROMPT_BS_BUCKET_MIN=4 will be overwritten!",
        "INFO 09-17 06:30:09 [w.py:1] Warmup finished in 184 secs, allocated 12.3 GiB of device memory",
        "(EngineCore_DP0 pid=7) INFO 11-23 14:08:20 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: "
        "model='m', api_key='s', enable_prefix_caching=False, tensor_parallel_size=2, enforce_eager=True, "
        "chunked_prefill_enabled=True",
        "(APIServer pid=7) INFO 11-23 14:08:20 [u.py:286] non-default args: {'max_num_seqs': 64, 'api_key': 'secret'}",
    )
    assert [(one.kind, one.name, one.value) for one in found.events if one.kind != "model"] == [
        ("preemption", "RECOMPUTE", 51), ("flag_ignored", "VLLM_PROMPT_BS_BUCKET_MIN=4", None), ("warmup", "", 184),
    ]  # fmt: skip
    assert {one.key: one.value for one in found.config} == {
        "enable_prefix_caching": "False", "tensor_parallel_size": "2", "max_num_seqs": "64", "enforce_eager": "True",
    }  # fmt: skip


def test_of_several_equal_lines_the_largest_number_counts() -> None:
    lines = [f"{V0}Warmup finished in {seconds} secs, allocated 1 GiB of device memory" for seconds in (20, 900, 30)]
    assert [(one.kind, one.value, one.count) for one in _read(*lines).events] == [("warmup", 900, 3)]


def test_only_the_last_start_of_a_server_counts() -> None:
    start = "(APIServer pid=7) INFO 11-23 14:08:20 [u.py:286] non-default args: {'max_num_seqs': 64}"
    engine = (
        "(EngineCore_DP0 pid=7) INFO 11-23 14:08:30 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config"
    )
    preempted = f"{V0}Sequence group 1 is preempted by PreemptionMode.SWAP mode. total_num_cumulative_preemption=1"
    bucket = "Decode bucket for (33, 1, 500) was not prepared. Adding new bucket: (34, 1, 512)"
    rates = "Avg prompt throughput: 8.0 tokens/s, Avg generation throughput: 9.0 tokens/s"
    load = f"{V1}{rates}, Waiting: 0 reqs, Running: "
    details = "0 context requests, 0 context tokens, 1 generation requests, 1 generation tokens"
    iteration = f"{V1}Iteration(7): {details}, iteration elapsed time: 3.41 ms, CPU KV cache usage: 0.2%"
    once = _read(start, engine, preempted, bucket, iteration, f"{load}1 reqs")
    assert (len(once.config), len(once.events), len(once.buckets), len(once.iterations)) == (1, 1, 1, 1)
    assert once.issues == ()
    twice = _read(
        start, preempted, bucket, iteration, f"{load}1 reqs", start.replace("64", "8"), engine, f"{load}2 reqs"
    )
    assert (twice.events, twice.buckets, twice.iterations) == ((), (), ())
    again = _read(*[preempted.replace("=1", "=51")] * 51, f"{load}1 reqs", start, preempted, f"{load}1 reqs")
    assert [(one.value, one.count) for one in again.events] == [(1, 1)]
    assert ([one.running for one in twice.intervals], [one.value for one in twice.config]) == ([2], ["8"])
    assert [(one.kind, one.count) for one in twice.issues] == [("not used", 1)]


_START = "(APIServer pid=7) INFO 11-23 14:08:20 [u.py:286] non-default args: {'max_num_seqs': 64}"
_ENGINE = "(EngineCore_DP1 pid=9) INFO 11-23 14:08:30 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config"


@pytest.mark.parametrize(
    ("lines", "running", "kinds"),
    [
        ((_START, _ENGINE, LOAD, _ENGINE, LOAD), 2, []),
        ((_START, _ENGINE, LOAD, _START, _ENGINE, LOAD), 1, ["not used"]),
        ((_ENGINE, LOAD, _ENGINE, LOAD), 1, ["not used"]),
        ((_START, re.sub(r"[\d.]+ (tokens/s|reqs)", r"0 \1", LOAD), _START, LOAD), 1, ["older start"]),
    ],
)
def test_an_engine_that_joins_is_no_start_of_the_server(lines: tuple[str, ...], running: int, kinds: list[str]) -> None:
    found = _read(*lines)
    assert len(found.intervals) == running
    assert [issue.kind for issue in found.issues] == kinds


def test_a_printed_result() -> None:
    (result,) = _read(
        "============ Serving Benchmark Result ============",
        "Successful requests:                     48        ",
        "---------------Time to First Token----------------",
        "Mean TTFT (ms):                          310.09    ",
        "==================================================",
        "Mean TPOT (ms):                          99.00     ",
    ).results
    assert [(one.name, one.statistic, one.value) for one in result.numbers] == [
        ("requests", "total", 48), ("ttft_ms", "mean", 310.09),
    ]  # fmt: skip
    assert result.requests == 48


def test_a_json_result_in_a_log() -> None:
    result = {"completed": 48, "num_prompts": 50, "mean_ttft_ms": 310.09}
    found = _read(LOAD, json.dumps(result), LOAD)
    (only,) = found.results
    assert {one.name: one.value for one in only.numbers} == {"requests": 48, "failed_requests": 2, "ttft_ms": 310.09}
    assert (only.exact, found.issues, len(found.intervals)) == (True, (), 2)
    pretty = json.dumps(result, indent=1)
    for text in (pretty, f"client: {json.dumps(result)}", json.dumps(result)[:-1], json.dumps({"result": result})):
        found = _read(LOAD, text)
        assert (found.results, [issue.kind for issue in found.issues]) == ((), ["stray value"])


VLLM, SGL = "INFO 11-23 14:01:00 [serve.py:10] ", "[2026-11-23 14:08:20] "
SLOW = {"date": "20261123-140000", "completed": 48, "num_prompts": 50, "mean_ttft_ms": 310.09}


@pytest.mark.parametrize(
    ("lines", "results", "kinds"),
    [
        ([f"{VLLM}{json.dumps(SLOW)}"], 1, []),
        ([f"{SGL}{json.dumps(SLOW)}"], 1, []),
        ([json.dumps({**SLOW, "message": "nightly"})], 1, []),
        ([json.dumps({"log": json.dumps({**SLOW, "msg": "nightly"}) + "\n"})], 1, []),
        ([f"{VLLM}result: {json.dumps(SLOW)}"], 0, ["stray value"]),
        ([f"client-1  | {line}" for line in json.dumps(SLOW, indent=2).split("\n")], 0, ["stray value"]),
        ([f"{VLLM}{line}" for line in json.dumps(SLOW, indent=2).split("\n")], 0, ["stray value"]),
        ([json.dumps({"message": f"{VLLM}started", "level": 3})], 0, []),
        # A client's text.
        ([f"{VLLM}Received request 7: {json.dumps(SLOW)}"], 0, []),
        ([f"{VLLM}prompt: {json.dumps(SLOW)!r}"], 0, []),
        ([f"{VLLM}{json.dumps({'prompt': json.dumps(SLOW)})}"], 0, []),
    ],
)
def test_a_json_result_behind_a_prefix(lines: list[str], results: int, kinds: list[str]) -> None:
    found = _read(LOAD, *lines)
    assert (len(found.results), [issue.kind for issue in found.issues]) == (results, kinds)


@pytest.mark.parametrize("indent", [None, 1])
def test_a_json_result_in_a_printed_one_is_damage(indent: int | None) -> None:
    title, end = "============ Serving Benchmark Result ============", "=" * 50
    found = _read(title, *json.dumps(SLOW, indent=indent).split("\n"), "Successful requests: 50", end)
    assert [issue.kind for issue in found.issues] == ["mixed results"]
    assert _read(LOAD, json.dumps({"step": 1, "mean_ttft_ms": 2})).issues == ()


_QUOTED = (
    "Engine 9: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 9000.0 tokens/s, Running: 1 reqs",
    "Decode batch. #running-req: 4, #token: 580, gen throughput (token/s): 95.50, #queue-req: 7",
    "What does 'LLM engine (v0.6)' mean?",
    "non-default args: {'max_num_seqs': 64}",
    "Sequence group 1 is preempted by PreemptionMode.SWAP mode (total_num_cumulative_preemption=9001)",
    "What does 'Skipping warmup' mean?",
    "Explain: ============ Serving Benchmark Result ============",
    "Configuration: (decode, 16, 200) was not warmed-up!",
    "Decode bucket for (33, 1, 500) was not prepared. Adding new bucket: (34, 1, 512)",
    "Graph compile failed",
    "CPU fallback aten::nonzero",
    "--batch_size 8",
)


@pytest.mark.parametrize("text", _QUOTED)
@pytest.mark.parametrize(
    "before",
    [
        "INFO 11-23 14:08:20 [logger.py:43] ",
        "(APIServer pid=7) INFO 11-23 14:08:20 [logger.py:43] ",
        "vllm-1  | INFO 11-23 14:08:20 [logger.py:43] ",
        "[2026-11-23 14:08:20 TP0] ",
    ],
)
@pytest.mark.parametrize(
    "request_line",
    [
        "Received request cmpl-7a1: prompt: {quoted}, params: SamplingParams(n=1), lora_request: None.",
        # A client also names its request.
        "Received request cmpl-{text}: prompt: 'Hello', params: SamplingParams(n=1), lora_request: None.",
        "Receive: obj=GenerateReqInput(rid='7a1', text={quoted}, stream=False)",
        "Error in preprocessing prompt inputs: {quoted}",
    ],
)
def test_the_text_of_a_request_is_no_line_of_the_server(text: str, before: str, request_line: str) -> None:
    honest = _read(LOAD, "filler", LOAD)
    assert _read(LOAD, before + request_line.format(quoted=repr(text), text=text), LOAD) == honest


@pytest.mark.parametrize("text", _QUOTED[:8])
def test_a_request_in_the_log_of_an_unknown_logger_is_no_line_of_the_server(text: str) -> None:
    line = f"2026-11-23 14:08:20,123 - vllm.logger - INFO - Received request cmpl-1: prompt: {text!r}"
    assert _read("filler", line) == _read("filler", "filler")


@pytest.mark.parametrize(
    "before",
    ["vllm-1  | (APIServer pid=7) INFO 11-23 14:08:20 [l.py:1] ", "0: INFO 11-23 14:08:20 [l.py:1] ",
     "2026-11-23 14:08:20,123 - vllm.engine.metrics - INFO - ", "node INFO 11-23 14:08:20 metrics.py:455] ",
     "2026-11-23T14:08:20.1Z pod-1 INFO [TP0] ", ""],
)  # fmt: skip
def test_a_line_of_vllm_may_have_any_prefix(before: str) -> None:
    found = _read(
        f"{before}non-default args: {{'max_num_seqs': 64}}",
        f"{before}Engine 000: Avg prompt throughput: 8.0 tokens/s, Running: 3 reqs",
    )
    assert [one.engine for one in found.intervals] == ["Engine 000"]
    assert [one.key for one in found.config] == ["max_num_seqs"]


@pytest.mark.parametrize(
    "before",
    ["Nov 23 14:35:13 gpu01 python[123]: ", "sglang-1  | ", "sglang  : ", "pod-1 sglang ",
     "[pod/sglang-0/sglang] ", "2026-11-23T14:35:13.123456789Z stdout F ", "2026-11-23T14:35:13Z pod-1 "],
)  # fmt: skip
@pytest.mark.parametrize("ranks", ["", " TP0", " DP0 ATTN_TP0"])
def test_a_line_of_sglang_may_have_any_prefix(before: str, ranks: str) -> None:
    found = _read(before + SGLANG.replace(" TP0", ranks))
    (interval,) = found.intervals
    assert (interval.running, interval.waiting, interval.time_ns) == (4, 7, 1_795_442_900 * S)
    assert found.issues == ()


_LINES = (*f"{LOAD}\nfiller\n{SGLANG}\n{DRAFTS}".split("\n"),)


def _docker(line: str, end: str = "\n") -> str:
    return json.dumps({"log": line + end, "stream": "stderr", "time": "2026-11-23T14:35:13.1Z"})


@pytest.mark.parametrize(
    "wrap",
    [_docker,
     lambda line: json.dumps({"level": "info", "ts": "2026-11-23", "msg": line}),
     lambda line: json.dumps({"message": line, "levelname": "INFO"}, separators=(",", ":")),
     lambda line: _docker(json.dumps({"message": line}))],
    ids=["Docker", "msg", "message", "Docker and message"],
)  # fmt: skip
def test_the_lines_of_a_log_in_json_are_read(wrap: Callable[[str], str]) -> None:
    assert _read(*map(wrap, _LINES)) == _read(*_LINES)


@pytest.mark.parametrize(
    "wrap",
    [lambda line: json.dumps({"payload": line}), lambda line: json.dumps([{"msg": line}]),
     repr, lambda line: f"b{line!r}", lambda line: f'level=info msg="{line}"',
     lambda line: f'time="2026-11-23" level=info msg="{line}"',
     lambda line: json.dumps({"msg": line})[:-1], lambda line: f"Nov 23 14:35:13 gpu01 docker[1]: {_docker(line)}"],
)  # fmt: skip
@pytest.mark.parametrize("line", [LOAD, SGLANG, _ITERATION])
def test_statistics_in_records_that_are_not_read_are_reported(line: str, wrap: Callable[[str], str]) -> None:
    assert [issue.kind for issue in _read(LOAD, wrap(line)).issues] == ["unknown statistics"]


def test_a_record_with_a_key_twice_is_reported() -> None:
    found = _read(f'{{"msg": {json.dumps(LOAD)}, "msg": {json.dumps(SGLANG)}}}')
    assert [issue.kind for issue in found.issues] == ["key twice"]


def test_the_rest_of_a_line_that_docker_divided_is_no_line_of_the_server() -> None:
    """Docker divides lines at 16 KiB, so a record may begin with a client's text."""
    divided = _docker("Received request cmpl-1: prompt: '" + "a" * 16_350, "")
    found = _read(_docker(SGLANG), divided, _docker(LOAD), _docker(SGLANG))
    assert [one.waiting for one in found.intervals] == [7, 7]
    # A record without a line feed is usually a whole line.
    assert len(_read(*(_docker(line, "") for line in (LOAD, SGLANG))).intervals) == 2


@pytest.mark.parametrize("text", _QUOTED[:8])
def test_the_text_of_a_request_in_a_record_is_no_line_of_the_server(text: str) -> None:
    for line in (f"Received request cmpl-1: prompt: {text!r}", f"prompt:\n{text}", f"Received request cmpl-{text}: b"):
        assert _read(_docker(LOAD), json.dumps({"msg": line}), _docker(LOAD)) == _read(_docker(LOAD), "", _docker(LOAD))


@pytest.mark.parametrize("word", ["1.1 ", "1." * 49 + "1 ", "1.1" + " " * 60, "1.1" + " " * 20_000])
def test_the_words_before_a_line_cost_no_more_than_their_length(word: str) -> None:
    """Each word had two ways to match, so eight words had 256."""
    line = word * 8 + "gen throughput\n"
    began = time.process_time()
    assert console_log.read((line * (300_000 // len(line) + 1)).encode()).intervals == ()
    assert time.process_time() - began < 2


def test_a_line_that_the_server_is_still_writing_is_left_out() -> None:
    reading = console_log.read(f"{LOAD}\n{LOAD[:120]}".encode())
    assert ([one.running for one in reading.intervals], reading.issues) == ([3], ())
