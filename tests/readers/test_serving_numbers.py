"""Results of benchmark clients, and saved metrics pages."""

from __future__ import annotations

import gzip
import json
import re
import time
import tracemalloc
from pathlib import Path

import pytest

from perftool.model.inputs import ImportIssue
from perftool.model.records import LogReading
from perftool.model.serving import ClientResult, MetricsPage, ServingInterval, ServingNumber
from perftool.readers import text_input
from perftool.readers.files import stream
from perftool.readers.serving import client_result, metrics_page
from perftool.readers.serving.chosen import chosen_result, server_numbers
from perftool.readers.serving.unused import Served, older_logs, unused

# In seconds since 1970.
TODAY = 91_324_800
PAGE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:generation_tokens_total{engine="0",model_name="m"} 8.0
vllm:generation_tokens_total{engine="1",model_name="m"} 4.0
vllm:generation_tokens_created{engine="0",model_name="m"} 1.7954431138040572e+09
vllm:generation_tokens_created{engine="1",model_name="m"} 1.7954431148e+09
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 2.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 2.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 0.25
vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf",model_name="m"} 0.0
vllm:time_to_first_token_seconds_count{engine="1",model_name="m"} 0.0
vllm:time_to_first_token_seconds_sum{engine="1",model_name="m"} 0.0
vllm:time_per_output_token_seconds_count{engine="0",model_name="m"} 10.0
vllm:time_per_output_token_seconds_count{engine="1",model_name="m"} 0.0
vllm:time_per_output_token_seconds_sum{engine="0",model_name="m"} NaN
vllm:num_preemptions_total{engine="0",model_name="m"} 1.0.0
vllm:request_success_total{engine="0"} 7 # {trace_id="x"} 1.0
vllm:request_success_total{engine="1"} 0
vllm:iteration_tokens_total_count{engine="0"} 9
vllm:iteration_tokens_total_count{engine="1"} 9.000,0
vllm:cache_config_info{block_size="32",enable_prefix_caching="False",engine="0",num_gpu_blocks="96"} 1.0
"""


def _starts(at: float | None = None) -> frozenset[tuple[str, float]]:
    """Return the start of the only engine of a server."""
    return frozenset([("", at)] if at is not None else [])


def test_a_metrics_page(tmp_path: Path) -> None:
    path = tmp_path / "page.txt"
    path.write_text(PAGE)
    found = text_input.read(str(path))
    assert found.kind == "serving"
    (page,) = found.pages
    assert {start for _, start in page.starts} == {1.7954431138040572e09, 1.7954431148e09}
    assert page.totals == {"output_tokens": 12, "ttft_ms": 250, "ttft_ms count": 2, "requests": 7}
    assert [(one.key, one.value) for one in found.config] == [
        ("num_gpu_blocks", "96"), ("block_size", "32"), ("enable_prefix_caching", "False"),
    ]  # fmt: skip
    assert [(one.kind, one.count) for one in found.issues] == [("bad value", 3)]


@pytest.mark.parametrize(
    ("text", "is_part"),
    [
        ("", True),
        ("# EOF", True),
        ('python_gc_objects_collected_total{generation="0"} 3.2e+04', True),
        ("process_start_time_seconds NaN 1700000000", True),
        ("vllm:unknown_seconds +Inf", True),
        ("vllm:unknown is not a number", False),
        ("Failed requests:                         999", False),
        ("requests: 9", False),
        ("INFO started", False),
    ],
)
def test_other_text_in_the_file_of_a_page_is_damage(text: str, is_part: bool) -> None:
    for page in (PAGE + text + "\n", text + "\n" + PAGE):
        issues = [one.kind for one in text_input.read(page.encode()).issues]
        assert sorted(issues) == ["bad value"] + ["other text"] * (not is_part)


@pytest.mark.parametrize(
    ("end", "issues"),
    [("", []), ('vllm:generation_tokens_total{engine="1"} 5\n', []), ("vllm:generation_tokens_total 5", ["cut line"]),
     ("vllm:other 5", ["cut line"]), ("# HELP vllm:", ["cut line"]), ("# HELP vllm:\n\t", [])],
)  # fmt: skip
def test_the_last_line_of_a_page_that_breaks_off_is_left_out(end: str, issues: list[str], tmp_path: Path) -> None:
    path = tmp_path / "page.txt"
    path.write_text("# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total 7\n" + end)
    for found in (text_input.read(str(path)), metrics_page.read(path)):
        assert found.pages[0].totals == {"output_tokens": 12 if end.endswith("5\n") and "tokens" in end else 7}
        assert [one.kind for one in found.issues] == issues


def test_long_words_in_labels_cost_no_more_than_their_length() -> None:
    line = "vllm:cache_config_info{" + ("a" * 60 + '="' + "b" * 200) * 3800 + "} 1\n"
    began = time.process_time()
    assert metrics_page.read(line.encode() * 3).config == ()
    assert time.process_time() - began < 1.5


def test_only_lines_of_known_totals_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    examined: list[str] = []
    real = metrics_page._SAMPLE

    class Counted:
        def match(self, text: str) -> re.Match[str] | None:
            examined.append(text)
            return real.match(text)

    monkeypatch.setattr(metrics_page, "_SAMPLE", Counted())
    page = metrics_page.read(b"\n" * 1000 + b"vllm:other 1\n" * 1000 + b"vllm:num_preemptions_total 7\n").pages[0]
    assert (page.totals, len(examined)) == ({"preemptions": 7}, 1)


def test_a_json_result_and_one_appended_to_it(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    one = {
        "backend": "vllm",
        "completed": 4,
        "mean_ttft_ms": 10.5,
        "p99_itl_ms": 3,
        "request_rate": "inf",
        "failed": None,
    }
    path.write_text("\n".join(json.dumps({**one, "completed": count}) for count in (4, 8)))
    found = text_input.read(str(path))
    assert (found.kind, [result.requests for result in found.results]) == ("serving", [4, 8])
    assert [(n.name, n.statistic, n.value) for n in found.results[0].numbers] == [
        ("requests", "total", 4), ("ttft_ms", "mean", 10.5), ("itl_ms", "p99", 3),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "failed"),
    [
        ({"num_prompts": 1000}, [999]),
        ({"num_prompts": 1000, "failed": None}, [999]),
        ({"num_prompts": 1000, "failed": 2}, [2]),
        ({"num_prompts": 1}, [0]),
        ({"num_prompts": 0}, []),
        ({"num_prompts": "1000"}, []),
        ({}, []),
    ],
)
def test_requests_without_an_answer_failed(more: dict[str, object], failed: list[int]) -> None:
    text = json.dumps({"completed": 1, "mean_ttft_ms": 5, **more})
    (result,) = text_input.read(text.encode()).results
    assert [one.value for one in result.numbers if one.name == "failed_requests"] == failed


def test_a_cut_result_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text('{"completed": 4, "mean_ttft_ms": 10.5}\n{"completed": 4, "mean_t')
    found = text_input.read(str(path))
    assert (len(found.results), [one.kind for one in found.issues]) == (1, ["bad JSON"])


@pytest.mark.parametrize("value", ["99999.5", 1e16, True, float("nan")])
def test_a_number_of_a_result_that_is_not_usable_is_reported(value: object, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"completed": 4, "mean_ttft_ms": value}))
    found = text_input.read(str(path))
    assert [one.kind for one in found.issues] == ["bad value"]


@pytest.mark.parametrize("lost", ["", 'x vllm:time_to_first_token_seconds_sum{engine="1"} 9000\n'])
def test_a_sum_over_engines_of_which_one_is_missing_is_unknown(lost: str, tmp_path: Path) -> None:
    path = tmp_path / "page.txt"
    one = 'vllm:time_to_first_token_seconds_{}{{engine="{}"}} 2\n'
    known = one.format("sum", 0) + one.format("count", 0) + one.format("count", 1)
    path.write_text(f"# TYPE vllm:x counter\n{known}{lost}")
    found = text_input.read(str(path))
    issues = ["other text", "bad value"] if lost else ["bad value"]
    assert (found.pages[0].totals, [issue.kind for issue in found.issues]) == ({}, issues)


def test_a_page_that_accepts_more_tokens_than_it_drafts_is_damaged() -> None:
    drafts = "vllm:spec_decode_num_draft_tokens_total 9.0\nvllm:spec_decode_num_accepted_tokens_total "
    for accepted, totals, kinds in ((9, {"drafted_tokens": 9, "accepted_tokens": 9}, []), (10, {}, ["bad value"])):
        found = metrics_page.read(f"{drafts}{accepted}.0\n".encode())
        assert (found.pages[0].totals, [issue.kind for issue in found.issues]) == (totals, kinds)


def test_a_value_that_a_page_has_twice_is_unknown() -> None:
    page = 'vllm:num_preemptions_total{engine="0"} 7\nvllm:num_preemptions_total{engine="1"} 1\n'
    assert metrics_page.read(page.encode()).pages[0].totals == {"preemptions": 8}
    found = metrics_page.read((page * 2).encode())
    assert (found.pages[0].totals, [(one.kind, one.count) for one in found.issues]) == ({}, [("bad value", 2)])


@pytest.mark.parametrize("name", ["a} 0 # {", 'a\\"} 0 # {', 'a",b="} 0'])
def test_a_label_of_a_page_may_contain_braces(name: str) -> None:
    found = metrics_page.read(f'vllm:num_preemptions_total{{engine="0",model_name="{name}"}} 500\n'.encode())
    assert (found.pages[0].totals, found.issues) == ({"preemptions": 500}, ())


def test_the_order_of_labels_does_not_matter() -> None:
    lines = ('vllm:num_preemptions_total{a="1",b="2"} 7\n', 'vllm:num_preemptions_total{b="2",a="1",} 7\n')
    found = metrics_page.read("".join(lines).encode())
    assert (found.pages[0].totals, [one.kind for one in found.issues]) == ({}, ["bad value"])


@pytest.mark.parametrize(
    ("first", "second"),
    [("# HELP vllm:x y", "# HELP vllm:x z"), ("# TYPE vllm:x gauge", "#\tTYPE  vllm:x gauge"),
     ("# HELP vllm:x y", 'sglang:x{model_name="b"} 1'), ("vllm:x 1", "# TYPE sglang:x gauge")],
)  # fmt: skip
def test_two_pages_in_one_file_are_reported(first: str, second: str) -> None:
    values = 'vllm:num_preemptions_total{model_name="a"} 7', 'vllm:num_preemptions_total{model_name="b"} 7'
    for lines, known in ((values, True), ((first, values[0]), True), ((first, values[0], second, values[1]), False)):
        found = metrics_page.read("".join(f"{line}\n" for line in lines).encode())
        assert (bool(found.pages[0].totals), not found.issues) == (known, known)


@pytest.mark.parametrize(
    ("lines", "totals"),
    [(9, {"output_tokens": 5, "ttft_ms": 5000, "ttft_ms count": 6}), (8, {"output_tokens": 5}),
     (7, {"output_tokens": 5}), (5, {"output_tokens": 5}), (2, {"output_tokens": 5})],
)  # fmt: skip
def test_a_page_that_lacks_its_last_lines_lacks_an_engine(lines: int, totals: dict[str, float]) -> None:
    time = "vllm:time_to_first_token_seconds"
    page = [f'vllm:generation_tokens_total{{engine="{engine}"}} {2 + engine}\n' for engine in (0, 1)]
    page += [f"# TYPE {time} histogram\n"]
    for engine in (0, 1):
        page += [f'{time}_bucket{{le="+Inf",engine="{engine}"}} 3\n', f'{time}_count{{engine="{engine}"}} 3\n',
                 f'{time}_sum{{engine="{engine}"}} {1 + 3 * engine}\n']  # fmt: skip
    found = metrics_page.read("".join(page[:lines]).encode())
    assert (found.pages[0].totals, not found.issues) == (totals, lines in (9, 2))


def test_an_engine_may_have_any_label() -> None:
    time = "vllm:time_to_first_token_seconds"
    page = f'{time}_sum{{dp="0"}} 1\n{time}_count{{dp="0"}} 3\n' + f'{time}_bucket{{le="+Inf",dp="1"}} 3\n'
    found = metrics_page.read(page.encode())
    assert (found.pages[0].totals, [one.kind for one in found.issues]) == ({}, ["bad value"])


def test_a_line_of_a_page_may_be_indented(tmp_path: Path) -> None:
    path = tmp_path / "page.txt"
    path.write_text("# TYPE vllm:x counter\n \tvllm:num_preemptions_total 3\n")
    found = text_input.read(str(path))
    assert (found.pages[0].totals, found.issues) == ({"preemptions": 3}, ())


@pytest.mark.parametrize("other", ['"completed": 4, "mean_ttft_ms": 500}', "a,b,c", "x"])
def test_text_between_results_is_reported(other: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    one = '{"completed": 4, "mean_ttft_ms": 10.5}'
    for text in (f"{one}\n{other}\n", f"{one}\n{other}\n{one}\n"):
        path.write_text(text)
        assert [issue.kind for issue in text_input.read(str(path)).issues] == ["bad JSON"]
    path.write_text(f"{one}\n{one},\n{one}\n")
    assert (len(text_input.read(str(path)).results), text_input.read(str(path)).issues) == (3, ())


def test_an_object_that_is_no_result_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text('{"completed": 4, "mean_ttft_ms": 10.5}\n{"run": {"completed": 4, "mean_ttft_ms": 500}}')
    found = text_input.read(str(path))
    assert (len(found.results), [one.kind for one in found.issues]) == (1, ["bad JSON"])


@pytest.mark.parametrize("measured", ["p99_tpot_ms", "output_throughput"])
def test_a_result_needs_the_number_of_requests_and_one_measured_number(measured: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps([{"completed": 4, measured: 5}, {"completed": 5, measured: 6}], indent=1))
    assert [result.requests for result in text_input.read(str(path)).results] == [4, 5]
    path.write_text(json.dumps({"completed": 4, "duration": 5}))
    assert text_input.read(str(path)).results == ()


@pytest.mark.parametrize("indent", [None, 1])
def test_a_result_with_the_details_of_many_requests_is_recognised(indent: int | None, tmp_path: Path) -> None:
    path = tmp_path / "load.json"
    result = {"completed": 4, "itls": [[0.00337] * 64] * 2000, "mean_ttft_ms": 5}
    path.write_text(json.dumps(result, indent=indent))
    assert text_input.sniff_input(str(path)).form == "client_result"
    (found,) = text_input.read(str(path)).results
    assert found.numbers == (ServingNumber("requests", "total", 4), ServingNumber("ttft_ms", "mean", 5))


RESULT = (
    "============ Serving Benchmark Result ============\nSuccessful requests: {0}\nMean TTFT (ms): {0}.00\n"
    "==================================================\n"
)


@pytest.mark.parametrize("form", ['{{"completed": {0}, "mean_ttft_ms": {0}.0}}\n', RESULT], ids=["JSON", "printed"])
def test_the_last_results_of_a_file_are_kept(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run of a client appends a result to its file."""
    monkeypatch.setattr(client_result, "_MOST_RESULTS", 3)
    path = tmp_path / "bench.log"
    path.write_text("".join(map(form.format, range(1, 6))))
    found = text_input.read(str(path))
    assert [result.requests for result in found.results] == [3, 4, 5]
    assert [(one.kind, one.count, one.message) for one in found.issues] == [
        ("too many results", 2, "only the last 3 results are kept")
    ]


@pytest.mark.parametrize("form", ['{{"completed": {0}, "mean_ttft_ms": {0}.0}}\n', RESULT], ids=["JSON", "printed"])
def test_times_that_a_client_did_not_measure_are_unknown(form: str, tmp_path: Path) -> None:
    """A client writes 0 for the times if there was no request to measure."""
    path = tmp_path / "bench.log"
    path.write_text(form.format(0))
    (result,) = text_input.read(str(path)).results
    assert result.numbers == (ServingNumber("requests", "total", 0),)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (RESULT.format(48), []),
        (RESULT.format(48).rstrip(), []),
        (RESULT.format(48)[:-51], ["cut result"]),
        (RESULT.format(48).partition("48.00")[0] + "4", ["bad value", "cut result"]),
        (RESULT.format(48).replace("48.00", "nan"), ["bad value"]),
        (RESULT.format(48).partition("48.00")[0] + "\n" + RESULT.format(5), ["bad value", "cut result"]),
        (RESULT.format(48).replace("=\nSucc", "=\nMean TTFT (ms): 9.00\nSucc"), ["mixed results"]),
        (RESULT.format(48).replace("=\nSucc", f"={RESULT[:50]}\nSucc"), ["mixed results"]),
        (RESULT.format(48).replace("=" * 50, "=" * 100), ["mixed results"]),
        (RESULT.format(48) + RESULT.format(9).replace("Serving", "S\0rving"), ["stray value"]),
        (RESULT.format(48) + f"{'x' * 99}\n" * 3_000 + " Output token throughput (tok/s): 7.0\n", ["stray value"]),
        (RESULT.format(48) + "=" * 50 + "\nTotal input tokens: 7\n", []),
        (RESULT.format(48) + RESULT.format(5), []),
    ],
    ids=["whole", "last line feed missing", "no end", "cut in a number", "no number", "a second title", "a value twice",
         "two titles in a line", "two ends in a line", "a lost title", "far from a result", "no value of a result",
         "two results"],
)  # fmt: skip
def test_damage_of_a_printed_result_is_reported(text: str, kinds: list[str], tmp_path: Path) -> None:
    path = tmp_path / "bench.log"
    path.write_text(text)
    assert [one.kind for one in text_input.read(str(path)).issues] == kinds


@pytest.mark.parametrize("key", ["mean_ttft_ms", "completed", "backend"])
def test_a_key_that_a_result_has_twice_is_reported(key: str, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    text = '{"backend": "vllm", "completed": 4, "mean_ttft_ms": 9000}'
    path.write_text(text)
    assert text_input.read(str(path)).issues == ()
    path.write_text(text.replace("}", f', "{key}": 10}}'))
    assert [one.kind for one in text_input.read(str(path)).issues][:1] == ["key twice"]


def test_blanks_in_a_printed_result_cost_no_more_than_their_length() -> None:
    line = " " * 60 + "a:" + " " * 300_000 + "x\n"
    began = time.process_time()
    assert text_input.read((RESULT.partition("\n")[0] + "\n" + line * 10).encode()).results == ()
    assert time.process_time() - began < 5


def _result(requests: float, time: float, *, exact: bool = True) -> ClientResult:
    numbers = (ServingNumber("requests", "total", requests), ServingNumber("ttft_ms", "mean", time))
    return ClientResult(numbers, exact)


def test_the_largest_result_counts_and_its_exact_form() -> None:
    exact = _result(48, 1.25)
    assert chosen_result([_result(2, 9), exact, _result(48, 1.3, exact=False)]) is exact
    assert chosen_result([]) is None


@pytest.mark.parametrize(
    ("results", "doubt"),
    [
        ([_result(40, 9)], True), ([_result(48, 9)], True),
        ([_result(48, 1.25)], False), ([_result(48, 1.254, exact=False)], False),
        ([_result(48, 1.26, exact=False)], True),
        ([_result(40, 9), _result(48, 1.25, exact=False)], False),
        ([_result(48, 1.25, exact=False), _result(40, 9)], True),
    ],
    ids=["smaller", "as many", "a copy", "printed", "printed, another", "warm-up in one log", "later in one log"],
)  # fmt: skip
def test_a_result_that_is_not_used_may_be_the_one_that_counts(results: list[ClientResult], doubt: bool) -> None:
    files = [
        Served("a.json", LogReading(results=tuple(results)), None),
        Served("b.json", LogReading(results=(_result(2, 9), _result(48, 1.25))), None),
    ]
    shown = f"{results[-1].requests:.0f} requests"
    clause = f"a result for {shown} is not used, because the one for 48 requests in b.json is"
    assert unused(files) == [[clause] if doubt else [], []]


def test_a_copy_has_the_same_times() -> None:
    """Two runs of the same benchmark have the same numbers of requests and tokens."""
    counts = (ServingNumber("requests", "total", 48), ServingNumber("prompt_tokens", "total", 480))
    slow, fast = (ClientResult((*counts, ServingNumber(name, "mean", 9))) for name in ("itl_ms", "ttft_ms"))
    files = [Served(f"{name}.json", LogReading(results=(one,)), None) for name, one in (("slow", slow), ("fast", fast))]
    assert sorted(map(len, unused(files))) == [0, 1]


def test_a_damaged_result_is_no_copy() -> None:
    printed, damage = (_result(48, 1.25, exact=False),), (ImportIssue("cut result", 1, "no end"),)
    whole = Served("b.json", LogReading(results=(_result(48, 1.25),)), None)
    for issues, clauses in (((), 0), (damage, 1)):
        found = unused([Served("a.log", LogReading(results=printed, issues=issues), None), whole])
        assert list(map(len, found)) == [clauses, 0]


@pytest.mark.parametrize(
    ("others", "unused_ones"),
    [
        ([TODAY - 86_400], [True]), ([TODAY + 5], [False]), ([TODAY - 15], [True]),
        ([TODAY - 5, 7, None], [False, False, False]),
    ],
    ids=["another day", "replicas", "before a restart", "adjacent intervals and logs without dates"],
)  # fmt: skip
def test_logs_of_earlier_runs_are_not_used(others: list[int | None], unused_ones: list[bool]) -> None:
    def log(*times_s: int | None) -> LogReading:
        times = [None if time is None else time * 10**9 for time in times_s]
        return LogReading(intervals=tuple(ServingInterval("", time) for time in times))

    newest = log(TODAY, TODAY + 60)
    found = older_logs([*((f"{at}.log", log(time)) for at, time in enumerate(others)), ("newest.log", newest)])
    clause = "the log of another run of the server is not used, because the newest one, newest.log, is used"
    assert found == [*(clause if old else None for old in unused_ones), None]


@pytest.mark.parametrize(
    ("started", "of_last", "saved_s", "doubt"),
    [
        (1.0, 1.0, 99, False), (9.0, 1.0, 5, True), (0.0, 1.0, 0.5, True), (0.0, 1.0, None, True),
        (None, None, 5, False), (None, None, 11, False), (None, None, 13, True), (None, None, None, False),
        (None, 1.0, 5, True),
    ],
    ids=["one server", "restarted", "before the start", "unknown time", "unknown start", "copied", "totals that fall",
         "unknown start and time", "one start unknown"],
)  # fmt: skip
def test_a_page_that_is_not_used_may_be_the_one_that_counts(
    started: float | None, of_last: float | None, saved_s: float | None, doubt: bool
) -> None:
    pages = [MetricsPage(_starts(started), {"output_tokens": 10}), MetricsPage(_starts(of_last), {"output_tokens": 30})]
    saved = [None if saved_s is None else int(saved_s * 1e9), 10_000_000_000]
    files = [Served(f"{at}.txt", LogReading(pages=(page,)), saved[at]) for at, page in enumerate(pages)]
    other = "of another server, or from before or after a restart,"
    clause = f"a metrics page {other} is not used, because that in 1.txt is used"
    assert unused(files) == [[clause] if doubt else [], []]


def test_a_page_between_the_first_and_the_last_may_be_the_one_that_counts() -> None:
    tokens = (10, 10, 20, 30, 30)
    pages = [MetricsPage(_starts(1.0), {"output_tokens": count}) for count in tokens]
    files = [Served(f"{at}.txt", LogReading(pages=(page,)), None) for at, page in enumerate(pages)]
    clause = "a metrics page is not used, because it was saved between those in 0.txt and 4.txt"
    assert unused(files) == [[], [], [clause], [], []]


def test_a_counter_does_not_disappear_from_a_later_page() -> None:
    many, few, none = {"output_tokens": 9.0, "preemptions": 0.0}, {"output_tokens": 30.0}, dict[str, float]()

    def clauses(*pages: dict[str, float]) -> list[list[str]]:
        readings = [LogReading(pages=(MetricsPage(_starts(1.0), totals),)) for totals in pages]
        return unused([Served(f"{at}.txt", reading, None) for at, reading in enumerate(readings)])

    assert clauses(many, few) == [["a metrics page is not used, because that in 1.txt lacks one of its counters"], []]
    # A counter may appear with the first request.
    assert clauses(none, many) == [[], []]


def test_pages_of_one_server_are_subtracted() -> None:
    before = MetricsPage(_starts(1.0), {"output_tokens": 10, "ttft_ms": 100, "ttft_ms count": 1})
    after = MetricsPage(_starts(1.0), {"output_tokens": 30, "ttft_ms": 300, "ttft_ms count": 3})
    of_another = MetricsPage(_starts(9.0), {"output_tokens": 5, "ttft_ms": 5, "ttft_ms count": 1})
    found = {one.name: one.value for one in server_numbers([after, of_another, before])}
    assert found == {"output_tokens": 20, "ttft_ms": 100}
    assert {one.name: one.value for one in server_numbers([after])} == {"output_tokens": 30, "ttft_ms": 100}


@pytest.mark.parametrize(
    "other",
    [MetricsPage(_starts(), {"output_tokens": 5}, frozenset({'model="b"'})),
     MetricsPage(_starts(), {"output_tokens": 5, "ttft_ms": 301}, frozenset({'model="a"'}))],
    ids=["another model", "a total that falls"],
)  # fmt: skip
def test_pages_of_two_servers_are_not_subtracted(other: MetricsPage) -> None:
    before, after = (
        MetricsPage(_starts(), {"output_tokens": tokens, "ttft_ms": ms, "ttft_ms count": 1}, frozenset({'model="a"'}))
        for tokens, ms in ((10, 100), (30, 300))
    )
    assert {one.name: one.value for one in server_numbers([before, other, after])} == {"output_tokens": 20}
    files = [Served(f"{at}", LogReading(pages=(page,)), None) for at, page in enumerate((other, after))]
    assert [len(clauses) for clauses in unused(files)] == [1, 0]


_VLLM = """\
vllm:generation_tokens_total{{engine="0"}} {0}
vllm:generation_tokens_total{{engine="1"}} {1}
vllm:generation_tokens_created{{engine="0"}} {2}
vllm:generation_tokens_created{{engine="1"}} {3}
"""
_SGLANG = """\
sglang:generation_tokens_total{{dp_rank="0"}} {0}
sglang:generation_tokens_total{{dp_rank="1"}} {1}
"""


@pytest.mark.parametrize(
    ("form", "before", "after", "doubt"),
    [
        (_VLLM, (9, 10, 5.0, 5.0), (9, 40, 5.0, 5.0), False),
        (_VLLM, (9, 10, 5.0, 5.0), (9, 40, 8.0, 5.0), True),
        (_VLLM, (0, 10, 5.0, 5.0), (9, 40, 5.0, 8.0), True),
        (_SGLANG, (9, 10), (9, 40), False),
        (_SGLANG, (9, 10), (2, 40), True),
    ],
)
def test_pages_from_before_and_after_a_restart_of_one_engine_are_not_subtracted(
    form: str, before: tuple[float, ...], after: tuple[float, ...], doubt: bool
) -> None:
    readings = [metrics_page.read(form.format(*values).encode()) for values in (before, after)]
    pages = [page for reading in readings for page in reading.pages]
    tokens = sum(after[:2]) - (0 if doubt else sum(before[:2]))
    assert list(server_numbers(pages)) == [ServingNumber("output_tokens", "total", tokens)]
    files = [Served(f"{at}.txt", reading, None) for at, reading in enumerate(readings)]
    assert [bool(found) for found in unused(files)] == [doubt, False]


def test_pages_with_equal_output_are_ordered_by_the_other_totals() -> None:
    before, after = (MetricsPage(_starts(), {"output_tokens": 10, "prompt_tokens": read}) for read in (5, 8))
    assert {one.name: one.value for one in server_numbers([after, before])} == {"output_tokens": 0, "prompt_tokens": 3}


def test_without_requests_between_two_pages_there_is_no_mean() -> None:
    before, after = (
        MetricsPage(_starts(1.0), {"output_tokens": 10, "ttft_ms": 100, "ttft_ms count": 1}) for _ in range(2)
    )
    assert list(server_numbers([before, after])) == [ServingNumber("output_tokens", "total", 0)]


def test_a_result_of_sglang(tmp_path: Path) -> None:
    path = tmp_path / "bench.jsonl"
    keys = {"backend": "sglang", "completed": 8, "mean_e2e_latency_ms": 900.5, "mean_ttft_ms": 5, "p99_tpot_ms": 2}
    path.write_text(json.dumps(keys) + "\n")
    (result,) = text_input.read(str(path)).results
    assert [(n.name, n.statistic, n.value) for n in result.numbers] == [
        ("requests", "total", 8), ("latency_ms", "mean", 900.5), ("ttft_ms", "mean", 5), ("tpot_ms", "p99", 2),
    ]  # fmt: skip


def test_a_result_of_short_lines_takes_little_more_memory_than_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_input, "HEAD_CHARACTERS", 10_000)
    monkeypatch.setattr(stream, "BLOCK", 100_000)
    path = tmp_path / "bench.json"
    text = json.dumps({"completed": 4, "mean_ttft_ms": 5.0, "itls": [1] * 50_000, "duration": 3.0}, indent=0)
    path.write_text(text)
    tracemalloc.start()
    try:
        assert text_input.sniff_input(str(path)).form == "client_result"
        (result,) = text_input.read(str(path)).results
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (result.requests, result.value("duration_s")) == (4, 3.0)
    assert peak < 30 * len(text)


def test_a_result_that_unpacks_to_too_much_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_result, "_MOST_TEXT", 1 << 20)
    path = tmp_path / "bench.json.gz"
    text = json.dumps({"completed": 4, "mean_ttft_ms": 5.0, "texts": "x" * (1 << 20)})
    path.write_bytes(gzip.compress(text.encode()))
    found = text_input.read(str(path))
    assert (found.results, found.issues[0].message) == ((), "only the first 1 MiB are read")
