"""Metrics files: both formats, cumulative records, resets and damage."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from perftool.model.records import (
    CompilationRecord,
    FallbackRecord,
    LogReading,
    MetricSnapshot,
    MetricValue,
)
from perftool.readers.metrics import metrics_file

AT = 1_729_285_090_000_431_000  # 2024-10-18 20:58:10.000431

JSON = """\
[{"metric_name": "graph_compilation", "triggered_by": "metric_change", \
"generated_on": "2024-10-18T20:56:53.275114", "statistics": {"TotalNumber": 3, "TotalTime": 2481093, \
"AvgTime": 827031.0, "recipe": [[".graph_dumps/HabanaFusedOpLazy_0", 911022], \
[".graph_dumps/HabanaFusedOpLazy_1", 798120], [".graph_dumps/HabanaFusedOpLazy_2", 771951]]}},
{"metric_name": "cpu_fallback", "triggered_by": "process_exit", \
"generated_on": "2024-10-18T20:58:10.000431", "statistics": \
{"TotalNumber": 2, "FallbackOps": {"aten::digamma": 2}}},
{"metric_name": "memory_defragmentation", "triggered_by": "process_exit", \
"generated_on": "2024-10-18T20:58:10.000431", "statistics": {"TotalNumber": 1, "TotalSuccessful": 1, \
"AvgTime": 14, "MaxTime": 14}},
{"metric_name": "recipe_cache", "triggered_by": "process_exit", \
"generated_on": "2024-10-18T20:58:10.000431", "statistics": \
{"TotalHit": 9, "RecipeHit": {"8231904": 9}, "TotalMiss": 1, "RecipeMiss": {"8231904": 1}}}
]
"""

TEXT = """\
Metric name: graph_compilation
Triggered by: {trigger}
Generated on: 2024-10-18 20:58:10.000431
Statistics:
	TotalNumber: 3
	TotalTime: 2481093
	AvgTime: 827031.0
	recipe: [('g_0', 911022)]

Metric name: cpu_fallback
Triggered by: {trigger}
Generated on: 2024-10-18 20:58:10.000431
Statistics:
	TotalNumber: 2
	FallbackOps: {{'aten::digamma': 2}}

"""


def compilations(*statistics: dict[str, object]) -> str:
    """Return a JSON metrics file with a graph_compilation record for each of ``statistics``."""
    records = [
        {"metric_name": "graph_compilation", "triggered_by": "mark_step", "statistics": item} for item in statistics
    ]
    return "[" + ",\n".join(map(json.dumps, records)) + "\n]\n"


def read(text: str) -> LogReading:
    return metrics_file.read(text.encode())


def issues(reading: LogReading) -> dict[str, int]:
    return {issue.kind: issue.count for issue in reading.issues}


def test_json_in_full() -> None:
    reading = read(JSON)
    name = ".graph_dumps/HabanaFusedOpLazy_"
    assert reading.compilations == tuple(
        CompilationRecord("metrics", 1, name + number, dur_ns, trigger="metric_change")
        for number, dur_ns in (("0", 911_022_000), ("1", 798_120_000), ("2", 771_951_000))
    )
    assert reading.fallbacks == (FallbackRecord("aten::digamma", "aten::digamma", 2, "metrics"),)
    assert reading.metrics == (
        MetricSnapshot(
            "graph_compilation",
            0,
            (
                MetricValue("TotalNumber", 3, 3),
                MetricValue("TotalTime", 2_481_093_000, 2_481_093_000, "ns"),
                MetricValue("AvgTime", 827_031_000, None, "ns"),
            ),
            "metric_change",
            1_729_285_013_275_114_000,
        ),
        MetricSnapshot(
            "cpu_fallback",
            0,
            (MetricValue("TotalNumber", 2, 2), MetricValue("FallbackOps", 2, 2, name="aten::digamma")),
            "process_exit",
            AT,
        ),
        MetricSnapshot(
            "memory_defragmentation",
            0,
            (
                MetricValue("TotalNumber", 1, 1),
                MetricValue("TotalSuccessful", 1, 1),
                MetricValue("AvgTime", 14_000_000, None, "ns"),
                MetricValue("MaxTime", 14_000_000, None, "ns"),
            ),
            "process_exit",
            AT,
        ),
        MetricSnapshot(
            "recipe_cache",
            0,
            (
                MetricValue("TotalHit", 9, 9),
                MetricValue("RecipeHit", 9, 9, name="8231904"),
                MetricValue("TotalMiss", 1, 1),
                MetricValue("RecipeMiss", 1, 1, name="8231904"),
            ),
            "process_exit",
            AT,
        ),
    )
    assert reading.issues == ()


@pytest.mark.parametrize("trigger", ["process_exit", "MetricDumpTrigger.process_exit"], ids=["3.10", "3.11"])
def test_text_of_both_pythons(trigger: str) -> None:
    reading = read(TEXT.format(trigger=trigger))
    assert reading.compilations == (
        CompilationRecord("metrics", 1, "g_0", 911_022_000, trigger="process_exit"),
        CompilationRecord("metrics", 2, None, 1_570_071_000, trigger="process_exit"),
    )
    assert reading.fallbacks == (FallbackRecord("aten::digamma", "aten::digamma", 2, "metrics"),)
    assert {(snapshot.trigger, snapshot.time_ns) for snapshot in reading.metrics} == {("process_exit", AT)}
    assert reading.issues == ()


def test_records_are_cumulative() -> None:
    reading = read(compilations(*({"TotalNumber": n, "TotalTime": 10 * n} for n in (3, 3, 4))))
    assert [(item.ordinal, item.count, item.dur_ns) for item in reading.compilations] == [
        (0, 3, 30_000),
        (2, 1, 10_000),
    ]
    assert [snapshot.values[0] for snapshot in reading.metrics] == [
        MetricValue("TotalNumber", 3, 3),
        MetricValue("TotalNumber", 3, 0),
        MetricValue("TotalNumber", 4, 1),
    ]


def test_recipe_list_grows_and_survives_a_reset() -> None:
    first, second = ["g_0", 10], ["g_1", 20]
    reading = read(
        compilations(
            {"TotalNumber": 1, "TotalTime": 10, "recipe": [first]},
            {"TotalNumber": 0, "TotalTime": 0, "recipe": [first]},
            {"TotalNumber": 1, "TotalTime": 20, "recipe": [first, second]},
        )
    )
    assert [(item.recipe, item.count, item.dur_ns) for item in reading.compilations] == [
        ("g_0", 1, 10_000),
        ("g_1", 1, 20_000),
    ]
    assert [snapshot.after_reset for snapshot in reading.metrics] == [False, True, False]


def test_fallbacks_add_up_over_a_reset() -> None:
    records = [
        {"metric_name": "cpu_fallback", "statistics": {"TotalNumber": sum(ops.values()), "FallbackOps": ops}}
        for ops in ({"aten::a": 2}, {"aten::a": 5, "aten::b.out": 1}, {"aten::a": 1})
    ]
    assert read(json.dumps(records)).fallbacks == (
        FallbackRecord("aten::a", "aten::a", 6, "metrics"),
        FallbackRecord("aten::b.out", "aten::b", 1, "metrics"),
    )


def test_snapshots_list_only_the_names_that_grew() -> None:
    records = [
        {"metric_name": "recipe_cache", "statistics": {"RecipeHit": hits}}
        for hits in ({"1": 2, "2": 3}, {"1": 2, "2": 4, "3": 1})
    ]
    assert read(json.dumps(records)).metrics[1].values == (
        MetricValue("RecipeHit", 4, 1, name="2"),
        MetricValue("RecipeHit", 1, 1, name="3"),
    )


@pytest.mark.parametrize(
    ("content", "problems"),
    [
        (JSON, {}),
        (JSON.replace("\n", "\r\n"), {}),
        (JSON.rstrip().removesuffix("]"), {"unterminated": 1}),
        (JSON.rstrip().removesuffix("]").rstrip() + ",\n", {"unterminated": 1}),
        (JSON[: JSON.index("RecipeMiss")], {"damaged record": 1, "unterminated": 1}),
        (JSON.replace("\n", " "), {}),
        (json.dumps(json.loads(JSON), indent=2), {}),
    ],
    ids=["whole", "crlf", "killed", "trailing comma", "half a record", "one line", "indented"],
)
def test_damaged_json_keeps_whole_records(content: str, problems: dict[str, int]) -> None:
    reading = read(content)
    assert [snapshot.metric for snapshot in reading.metrics][:3] == [
        "graph_compilation",
        "cpu_fallback",
        "memory_defragmentation",
    ]
    assert reading.fallbacks == (FallbackRecord("aten::digamma", "aten::digamma", 2, "metrics"),)
    assert issues(reading) == problems


def test_a_half_record_in_the_middle_is_the_only_one_lost() -> None:
    lines = JSON.splitlines()
    lines[1] = lines[1][:60]
    reading = read("\n".join(lines))
    assert [snapshot.metric for snapshot in reading.metrics] == [
        "graph_compilation",
        "memory_defragmentation",
        "recipe_cache",
    ]
    assert issues(reading) == {"damaged record": 1}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_other_encodings(encoding: str) -> None:
    for text in (JSON, TEXT.format(trigger="process_exit")):
        assert metrics_file.read(text.encode(encoding)) == read(text)


def test_text_cut_in_a_number_drops_the_number() -> None:
    text = TEXT.format(trigger="process_exit")
    reading = read(text[: text.index("81093")])
    assert reading.metrics[0].values == (MetricValue("TotalNumber", 3, 3),)
    assert issues(reading) == {"damaged record": 1}


@pytest.mark.parametrize("value", ["{'a': open('x')}", "__import__('os')", "{", "[" * 5000, "1if 2", "9" * 5000])
def test_text_values_are_never_evaluated(value: str) -> None:
    reading = read(f"Metric name: cpu_fallback\nStatistics:\n\tTotalNumber: 1\n\tFallbackOps: {value}\n")
    assert reading.metrics[0].values == (MetricValue("TotalNumber", 1, 1),)
    assert issues(reading) == {"bad value": 1, "missing fallbacks": 1}


def test_an_f_string_costs_no_more_than_its_length() -> None:
    value = "f'" + "{a}" * 100_000 + "'"
    began = time.process_time()
    reading = read(f"Metric name: cpu_fallback\nStatistics:\n\tTotalNumber: 1\n\tFallbackOps: {value}\n")
    assert time.process_time() - began < 2
    assert issues(reading) == {"bad value": 1, "missing fallbacks": 1}


@pytest.mark.parametrize(
    ("statistics", "problems"),
    [
        ({"TotalNumber": 3, "FallbackOps": {"aten::a": 1, "aten::b": 2}}, {}),
        ({"TotalNumber": 0, "FallbackOps": {}}, {}),
        ({"TotalNumber": 0}, {}),
        ({"TotalNumber": 3, "FallbackOps": {"aten::a": 1}}, {"missing fallbacks": 1}),
        ({"TotalNumber": 3, "FallbackOps": {}}, {"missing fallbacks": 1}),
        ({"TotalNumber": 3, "FallbackOps": 3}, {"missing fallbacks": 1}),
        ({"TotalNumber": 3}, {"missing fallbacks": 1}),
        ({"FallbackOps": {}}, {"missing fallbacks": 1}),
        ({}, {"damaged record": 1}),
    ],
)
def test_fallbacks_must_add_up_to_their_total(statistics: dict[str, object], problems: dict[str, int]) -> None:
    text = "Metric name: cpu_fallback\nStatistics:\n" + "".join(f"\t{key}: {statistics[key]}\n" for key in statistics)
    record = {"metric_name": "cpu_fallback", "statistics": statistics}
    assert issues(read(json.dumps([record]))) == issues(read(text)) == problems


def test_a_statistic_twice_is_reported() -> None:
    ops = ("{'aten::a': 3}", "{}")
    text = "Metric name: cpu_fallback\nStatistics:\n\tTotalNumber: 0\n" + "".join(
        f"\tFallbackOps: {op}\n" for op in ops
    )
    assert issues(read(text)) == {"key twice": 1}
    text = "Metric name: cpu_fallback\nStatistics:\n\tTotalNumber: 0\n\tFallbackOps: {'aten::a': 3, 'aten::a': 0}\n"
    assert issues(read(text)) == {"key twice": 1}
    inner = '"TotalNumber": 0, "FallbackOps": {"aten::a": 3}, "FallbackOps": {}'
    assert issues(read('[{"metric_name": "cpu_fallback", "statistics": {' + inner + "}}]")) == {"key twice": 1}


def test_hits_of_recipes_have_numbers_for_names() -> None:
    reading = read("Metric name: recipe_cache\nStatistics:\n\tTotalHit: 9\n\tRecipeHit: {8231904: 9}\n")
    assert reading.metrics[0].values == (MetricValue("TotalHit", 9, 9), MetricValue("RecipeHit", 9, 9, name="8231904"))
    assert reading.issues == ()


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-1", "true", '"3"', "1" + "0" * 30, "null"])
def test_impossible_numbers_are_left_out(value: str) -> None:
    reading = read('[{"metric_name": "m", "statistics": {"good": 1, "bad": ' + value + "}}]")
    assert reading.metrics[0].values == (MetricValue("good", 1, 1),)
    assert issues(reading) == {"bad value": 1}


@pytest.mark.parametrize("name", ["m-rank3.json", "m-rank3.json.1", "logs.d/m-rank3.json", "m-rank3.txt"])
def test_rank_from_the_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(JSON)
    reading = metrics_file.read(path)
    assert reading.ranks == (3,)
    assert {record.rank for record in (*reading.metrics, *reading.compilations, *reading.fallbacks)} == {3}


def test_empty_file() -> None:
    assert read("") == LogReading(kind="metrics")
    assert read("\n\n") == LogReading(kind="metrics")
