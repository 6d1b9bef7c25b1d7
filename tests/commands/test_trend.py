"""``--summary-jsonl`` and ``trend``, from a single run to a gate over many runs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from builders.program import Run
from events import document, launch, step, x

from perftool.model.metrics import metric_names

pytest.importorskip("ruptures")
TRACE = document([step(1, 0, 1000), x("aten::mm", 10, 30)])


def line(at: int, value: float | None, **more: Any) -> str:
    made = {
        "version": 1, "time": f"2026-01-{at:02}T02:00:00Z", "name": "run.json", "device": "GAUDI2", "world_size": 1,
        "rank": None, "metrics": {"step_time_ms": value}, "findings": ["GAP101"], **more,
    }  # fmt: skip
    return json.dumps(made) + "\n"


def write(values: list[float], **more: Any) -> None:
    Path("n.jsonl").write_text("".join(line(at, value, **more) for at, value in enumerate(values, 1)))


STEADY = [100.0, 101, 99, 100, 102, 100, 99, 101]


@pytest.mark.parametrize(
    ("values", "code", "said"),
    [
        (STEADY, 0, "step_time_ms: 100 ms since 2026-01-01T02:00, steady."),
        ([*STEADY, 130], 0, "steady"),
        ([*STEADY, 130, 131, 129], 1, "130 ms since 2026-01-09T02:00, 30.0 % worse than the best earlier level, 100"),
        ([*STEADY, 70, 71, 69], 0, "70.0 ms since 2026-01-09T02:00, 30.0 % better than"),
        # A regression that is only half fixed is still a regression.
        ([*STEADY, 150, 151, 149, 110, 111, 110], 1, "10.0 % worse than the best earlier level, 100 ms."),
        ([*STEADY, 104, 104, 104, 104, 104, 104], 0, "104 ms since 2026-01-09T02:00; within 5.0 % of the best earlier"),
        ([100, 150, 150, 150, 150], 0, "too few runs to judge (fewer than 6)"),
        ([0.0] * 8, 0, "steady"),
        # The new level starts at the first run that differs, not at the third such run.
        ([204, 215, 103, 102, 104, 103, 102], 0, "103 ms since 2026-01-03T02:00, 50.8 % better than"),
        ([*STEADY, 130, 131], 0, "steady"),
    ],
)  # fmt: skip
def test_a_level_that_got_worse_fails(values: list[float], code: int, said: str, run: Run) -> None:
    write(values)
    assert run("trend", "n.jsonl") == code
    assert said in run.out
    assert max(map(len, run.out.splitlines()[1:])) <= 80


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ([0] * 8 + [500] * 3, 1), ([0] * 8 + [1, 40, 2], 1), ([0] * 28 + [2] * 3, 1), ([0, 0, 1, *[0] * 9, 4, 3, 5], 1),
        ([0] * 8 + [500] * 2, 0), ([0] * 8 + [500, 500, 0], 0), ([0, 3, 0, 0, 7, 0, 0, 0, 2, 0, 0, 5], 0),
        ([0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 1, 1, 1], 0), ([9] * 3 + [0] * 8, 0),
    ],
)  # fmt: skip
def test_a_rise_from_0_fails_unless_it_may_be_chance(values: list[int], code: int, run: Run) -> None:
    lines = [line(at, None) for at in range(1, len(values) + 1)]
    made = [json.loads(one) | {"metrics": {"fallback_ops": value}} for one, value in zip(lines, values, strict=True)]
    Path("n.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in made))
    assert run("trend", "n.jsonl", "--metric", "fallback_ops", "--threshold", "150") == code
    assert (", worse than the best earlier level, 0." in run.out) == (code == 1)


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (line(9, None), "n.jsonl: the newest run (run.json) does not show step_time_ms, so it is not judged"),
        (
            line(9, 100.0, lost=1),
            "n.jsonl: the newest run (run.json) is incomplete, so it is not judged: an input could not be read in full",
        ),
        (
            line(9, 100.0, rank=1),
            "n.jsonl: the newest run (run.json) has no line for the whole run, so it is not judged",
        ),
        (line(9, 100.0)[:40] + "\n", "n.jsonl: the last line of the file is corrupt, so the newest run is not judged"),
    ],
)
def test_the_gate_fails_if_the_newest_run_lacks_the_number(last: str, said: str, run: Run) -> None:
    write(STEADY)
    with Path("n.jsonl").open("a") as file:
        file.write(last)

    assert run("trend", "n.jsonl") == 2
    assert "steady" in run.out
    assert said in run.err


@pytest.mark.parametrize(
    ("values", "cut", "code"),
    [
        ([*STEADY, 200, 201, 199, 200], (), 1), ([*STEADY, 200, 201, 199, 200], (8, 9, 10), 2),
        ([*STEADY, 200, 201, 199, 200], (10,), 2), ([*STEADY, 200, 201, 199, 200], (8,), 1),
        # A level of three runs is judged, whatever precedes it.
        ([*STEADY, 200, 100, 101, 99], (8,), 0), ([*STEADY, 200, 100, 101], (8,), 2), ([*STEADY, 130], (3,), 0),
        # Too few runs, and corrupt lines before the first run.
        ([100, 200, 201], (1,), 0), ([200, *[100] * 2], (0,), 0),
    ],
)  # fmt: skip
def test_the_gate_fails_if_corrupt_lines_may_hide_a_level(
    values: list[float], cut: tuple[int, ...], code: int, run: Run
) -> None:
    lines = [line(at, value) for at, value in enumerate(values, 1)]
    Path("n.jsonl").write_text("".join(one[:40] + "\n" if at in cut else one for at, one in enumerate(lines)))
    assert run("trend", "n.jsonl") == code
    said = "n.jsonl: fewer than 3 runs follow a corrupt line of the file, so the newest run is not judged"
    assert (said in run.err) == (code == 2)


def test_a_line_with_a_key_twice_is_corrupt(run: Run) -> None:
    write(STEADY)
    with Path("n.jsonl").open("a") as file:
        file.write(line(9, 200.0).replace('"step_time_ms": 200.0', '"step_time_ms": 200.0, "step_time_ms": 100.0'))
    assert run("trend", "n.jsonl") == 2
    assert "the last line of the file is corrupt" in run.err


@pytest.mark.parametrize("end", [b"", gzip.compress(b"x" * 500, mtime=0)[:12]])
def test_the_gate_fails_if_the_compressed_end_of_the_file_is_damaged(end: bytes, run: Run) -> None:
    """The lines of later runs may have been lost."""
    write(STEADY)
    whole = gzip.compress(Path("n.jsonl").read_bytes())
    Path("n.jsonl.gz").write_bytes(whole + end if end else whole[:-1] + bytes([whole[-1] ^ 1]))

    assert run("trend", "n.jsonl.gz") == 2
    assert "n.jsonl.gz: the last line of the file is corrupt" in run.err


@pytest.mark.parametrize(
    ("usual", "other"),
    [
        ({"steps_from": "profiler"}, {"steps_from": "annotation"}),
        ({"steps_from": "optimizer", "step_unit": "2 calls of Adam"}, {"steps_from": "optimizer", "step_unit": "Adam"}),
    ],
)
def test_the_gate_fails_if_the_steps_of_the_newest_run_were_found_in_another_way(
    usual: dict[str, str], other: dict[str, str], run: Run
) -> None:
    write(STEADY, **usual)
    with Path("n.jsonl").open("a") as file:
        file.write(line(9, 5.0, **other))

    assert run("trend", "n.jsonl") == 2
    assert "its steps were detected differently from those of most runs" in run.err


@pytest.mark.parametrize("other", [{"device": "gaudi2"}, {"world_size": 2}, {"origin": "simulated"}])
def test_the_gate_fails_if_too_few_runs_have_the_settings_of_the_newest(other: dict[str, Any], run: Run) -> None:
    write(STEADY)
    with Path("n.jsonl").open("a") as file:
        file.write("".join(line(at, 500.0, **other) for at in range(9, 14)))
    assert run("trend", "n.jsonl") == 2
    assert "only 5 of 13 runs have its device, world size, origin and kind of steps" in run.err
    assert "too few runs to judge" in run.out
    # The gate passes if the history starts with runs like the newest, or contains enough of them.
    assert run("trend", "n.jsonl", "--since", "2026-01-09") == 0
    with Path("n.jsonl").open("a") as file:
        file.write(line(14, 500.0, **other))
    assert run("trend", "n.jsonl") == 0


def test_the_gate_fails_if_only_the_newest_run_shows_no_device_work(run: Run) -> None:
    shown = {"step_time_ms": 100.0, "device_busy_ratio": 0.9}
    Path("n.jsonl").write_text("".join(line(at, 0, metrics=shown) for at in range(1, 9)) + line(9, 25.0))
    assert run("trend", "n.jsonl") == 2
    assert "the newest run (run.json) is not judged: it shows no device work, but most runs do" in run.err


@pytest.mark.parametrize(
    ("last", "code", "said"),
    [
        ({"recorded_per_step_ms": 250.0}, 2, "its recording takes 250 ms per step (usually 105 ms), "
                                            "but its median step grew less"),
        ({"recorded_per_step_ms": 130.0}, 0, ""),
        ({"recorded_per_step_ms": 250.0, "metrics": {"step_time_ms": 240.0}}, 0, ""),
        ({"warm_up_steps": 10, "with_warm_up_ms": 250.0}, 2, "it has 10 warm-up steps (usually 3), and if all but "
                                            "the first 2 count, its recording takes 250 ms per step (usually 105 ms)"),
        ({"warm_up_steps": 3, "with_warm_up_ms": 250.0}, 0, ""),
        ({"warm_up_steps": 10, "with_warm_up_ms": 130.0}, 0, ""),
        ({"lost_kernels_ratio": 0.2}, 2, "it lacks 20.0 % of the kernels that its steps launched (usually 0.0 %)"),
        ({"lost_kernels_ratio": 0.04}, 0, ""),
        ({"iteration_ms": {"prefill": 9.0, "decode": 250.0}}, 2, "a decode iteration takes 250 ms on average (usually "
                                            "100 ms), but the median iteration grew less, so some iterations are slow"),
        # Longer prompts take longer.
        ({"iteration_ms": {"prefill": 900.0, "mixed": 900.0, "decode": 130.0}}, 0, ""),
        ({"iteration_ms": {"decode": 250.0}, "metrics": {"step_time_ms": 240.0}}, 0, ""),
    ],
)  # fmt: skip
def test_the_gate_does_not_judge_a_newest_run_that_its_steps_do_not_describe(
    last: dict[str, Any], code: int, said: str, run: Run
) -> None:
    usual = {"recorded_per_step_ms": 105.0, "warm_up_steps": 3, "with_warm_up_ms": 105.0, "lost_kernels_ratio": 0.0,
             "iteration_ms": {"prefill": 9.0, "mixed": 9.0, "decode": 100.0}}  # fmt: skip
    write(STEADY, **usual)
    with Path("n.jsonl").open("a") as file:
        file.write(line(9, 100.0, **{**usual, **last}))
    assert run("trend", "n.jsonl") == code
    assert said in run.err


@pytest.mark.parametrize("threshold", ["inf", "1e400", "nan"])
def test_every_run_would_pass_an_infinite_threshold(threshold: str, run: Run) -> None:
    write([*STEADY, 300.0])
    assert run("trend", "n.jsonl", "--threshold", threshold) == 2
    assert "--threshold" in run.err


def test_a_line_says_how_well_the_steps_describe_the_recording(run: Run) -> None:
    events = [x("aten::mm", 0, 900), *(step(n, 3000 + 1000 * n, 1000) for n in range(3)), x("aten::mm", 3010, 2900)]
    for n in range(6):
        events += launch(n, 3010 + 500 * n, 5, 3100 + 500 * n, 9)[: 2 - n % 2]
    Path("t.json").write_bytes(document(events))
    assert run("analyze", "t.json", "--select", "GAP101", "--summary-jsonl", "n.jsonl") == 0
    found = json.loads(Path("n.jsonl").read_text())
    assert (found["recorded_per_step_ms"], found["lost_kernels_ratio"]) == (2.0, 0.5)
    assert (found["warm_up_steps"], found["with_warm_up_ms"]) == (0, 2.0)


def test_the_gate_fails_if_the_newest_run_lacks_the_rank(run: Run) -> None:
    Path("n.jsonl").write_text("".join(line(at, 1.0, rank=1) for at in range(1, 9)) + line(9, 1.0))
    assert run("trend", "n.jsonl", "--rank", "1") == 2
    assert "n.jsonl: the newest run (run.json) has no line for rank 1, so it is not judged" in run.err


def test_the_gate_fails_if_the_newest_run_lacks_a_rank_of_most_runs(run: Run) -> None:
    ranks = "".join(line(at, 1.0, rank=rank) for at in range(1, 9) for rank in (None, 0, 1, 2))
    Path("n.jsonl").write_text(ranks + line(9, 1.0) + line(9, 1.0, rank=1))
    assert run("trend", "n.jsonl") == 2
    assert "n.jsonl: the newest run (run.json) lacks ranks 0, 2, which most runs have, so it is not judged" in run.err
    assert run("trend", "n.jsonl", "--since", "2026-01-09") == 0


@pytest.mark.parametrize(
    ("wrong", "other"),
    [
        # The machine of the last recording boots with its clock at a fixed date, so the last run would come first.
        ({9: {"recorded": "2010-01-01T00:00:00Z"}}, "eight, 2026-01-08T02:00:00Z"),
        # The run was analysed on such a machine.
        ({9: {"time": "2010-01-01T00:00:00Z"}}, "eight, 2026-01-08T02:00:00Z"),
        # A machine with its clock in the future wrote an earlier line, so this run would be the newest forever.
        ({2: {"time": "2042-01-01T00:00:00Z"}}, "two, 2042-01-01T00:00:00Z"),
    ],
)
@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("more", [[], ["--since", "2026"], ["--rank", "1"]])
def test_the_gate_fails_if_the_run_analysed_last_is_not_the_newest(
    wrong: dict[int, dict[str, str]], other: str, lost: int, more: list[str], run: Run
) -> None:
    names = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    Path("n.jsonl").write_text("".join(
        line(at, 100.0, **{"name": name, "rank": rank, "lost": lost * int(at == 9), **wrong.get(at, {})})
        for at, name in enumerate(names, 1) for rank in (None, 0, 1)
    ))  # fmt: skip
    assert run("trend", "n.jsonl", *more) == 2
    said = "nine) is incomplete and, by its date" if lost else "nine) is, by its date"
    assert f"n.jsonl: the run that was analysed last ({said}, older than another run ({other}), so it is not" in run.err


def test_a_recording_after_its_analysis_has_the_date_of_the_analysis(run: Run) -> None:
    Path("n.jsonl").write_text("".join(
        line(at, value, recorded="2031-01-01T00:00:00Z" if at == 9 else "")
        for at, value in enumerate([*STEADY, 100, 150, 150, 150], 1)
    ))  # fmt: skip
    assert run("trend", "n.jsonl") == 1
    assert "150 ms since 2026-01-10T02:00, 50.0 % worse" in run.out


def test_runs_that_overlap_may_be_analysed_in_any_order(run: Run) -> None:
    write(STEADY)
    with Path("n.jsonl").open("a") as file:
        for recorded in ("2026-01-09T01:20:00Z", "2026-01-09T01:00:00Z"):
            file.write(line(9, 100.0, recorded=recorded))
    assert run("trend", "n.jsonl") == 0


def test_earlier_incomplete_runs_are_left_out(run: Run) -> None:
    Path("n.jsonl").write_text("".join(line(at, value, lost=int(at in (5, 6, 7))) for at, value in
                                       enumerate([*STEADY[:4], 10.0, 10, 10, *STEADY[4:]], 1)))  # fmt: skip
    assert run("trend", "n.jsonl") == 0
    assert "Left out: 3 runs with inputs that could not be read in full." in run.out


def test_a_run_of_which_a_rank_cannot_be_read_is_not_judged(run: Run) -> None:
    write(STEADY)
    info = {"rank": 0, "world_size": 2}
    Path("rank0.json").write_bytes(document([step(1, 0, 1000), x("aten::mm", 10, 30)], distributedInfo=info))
    Path("rank1.json").write_bytes(b'{"traceEvents": garbage')
    assert run("analyze", "rank0.json", "rank1.json", "--select", "GAP101", "--summary-jsonl", "n.jsonl") == 0
    lines = [json.loads(text) for text in Path("n.jsonl").read_text().splitlines()[len(STEADY) :]]
    assert {one["lost"] for one in lines} == {1}
    assert run("trend", "n.jsonl") == 2
    assert "is incomplete, so it is not judged: an input could not be read in full" in run.err


def test_the_better_direction_of_a_number_counts(run: Run) -> None:
    values = [*[0.9] * 6, *[0.7] * 4]
    write([1.0] * 10)
    Path("n.jsonl").write_text("".join(
        line(at, None, metrics={"device_busy_ratio": value, "window_ms": value}) for at, value in enumerate(values, 1)
    ))  # fmt: skip
    assert run("trend", "n.jsonl", "--metric", "device_busy_ratio") == 1
    assert "20.0 points worse" in run.out
    assert run("trend", "n.jsonl", "--metric", "window_ms") == 0
    assert "neither better nor worse by itself" in run.out
    assert run("trend", "n.jsonl", "--metric", "device_idle_ratio") == 2
    assert "Left out: 10 runs whose inputs do not show device_idle_ratio." in run.out


def test_other_machines_are_left_out_and_damage_is_counted(run: Run) -> None:
    worse = [line(at, 150.0, findings=["GAP101", "SYN101"]) for at in range(10, 14)]
    other = line(9, 5.0, device="H100")
    Path("n.jsonl").write_text(
        "".join(line(at, v) for at, v in enumerate(STEADY, 1)) + other + '{"version": 1, "ti\n[]\n' + "".join(worse)
    )
    assert run("trend", "n.jsonl", "--output-format", "json") == 1
    found = json.loads(run.out)
    kept = {key: found[key] for key in ("damaged", "left_out", "regression", "verdict", "metric", "unit", "better")}
    assert kept == {"damaged": 2, "left_out": 1, "regression": True, "verdict": "worse", "metric": "step_time_ms",
                    "unit": "ms", "better": "lower"}  # fmt: skip
    assert [(level["runs"], level["median"], level["new_codes"]) for level in found["levels"]] == [
        (8, 100.0, []), (4, 150.0, ["SYN101"]),
    ]  # fmt: skip
    # ``--since`` accepts the slower runs: earlier runs no longer count.
    assert run("trend", "n.jsonl", "--since", "2026-01-10") == 0


@pytest.mark.parametrize("text", [b"", b"hello\n", b"\x00\xff" * 100, b'{"traceEvents": []}\n', b'{"version": 2}'])
def test_a_file_of_another_kind_gives_one_sentence(text: bytes, run: Run) -> None:
    Path("n.jsonl").write_bytes(text)
    assert run("trend", "n.jsonl") == 2
    sentence = "no run summaries; analyze TRACE --summary-jsonl FILE writes them"
    assert run.err == f"habana_perf_tool: n.jsonl: {sentence}\n"


@pytest.mark.parametrize(
    "change",
    [
        {"time": 3},
        {"metrics": {"a": "b"}},
        {"metrics": {"a": True}},
        {"rank": "0"},
        {"findings": [1]},
        {"findings": ["a"] * 20_000},
        {"lost": "1"},
        {"lost": True},
        {"lost": -1},
    ],
)
def test_a_line_with_other_types_is_damaged(change: dict[str, Any], run: Run) -> None:
    Path("n.jsonl").write_text(line(1, 1.0, **change) + line(2, 1.0))
    assert run("trend", "n.jsonl") == 0
    assert "1 corrupt line." in run.out


def test_unknown_metrics_and_empty_choices_are_sentences(run: Run) -> None:
    write(STEADY)
    assert run("trend", "n.jsonl", "--metric", "speed") == 2
    assert run("trend", "n.jsonl", "--only", "other*") == 2
    assert run("trend", "n.jsonl", "--rank", "3") == 2
    assert run.err == "habana_perf_tool: the file has no matching line of rank 3\n"


def test_the_page_escapes_names(run: Run) -> None:
    write(STEADY, name="<script>alert(1)</script>")
    assert run("trend", "n.jsonl", "--output-format", "html", "-o", "t.html") == 0
    page = Path("t.html").read_text()
    assert "<script" not in page
    assert page.count("<circle") == len(STEADY)


def test_a_run_appends_a_line_after_ending_a_cut_one(run: Run) -> None:
    Path("run.json").write_bytes(TRACE)
    for _ in range(2):
        assert run("analyze", "run.json", "--select", "GAP101", "--summary-jsonl", "n.jsonl") == 0
    first, second = map(json.loads, Path("n.jsonl").read_text().splitlines())
    assert set(first["metrics"]) == set(metric_names())
    assert (first["name"], first["metrics"]["step_time_ms"], first["metrics"]["mfu_ratio"]) == ("run.json", 1.0, None)
    assert {**first, "time": ""} == {**second, "time": ""}
    Path("n.jsonl").write_text(Path("n.jsonl").read_text() + '{"cut')
    assert run("analyze", "run.json", "--select", "GAP101", "--summary-jsonl", "n.jsonl") == 0
    assert [text[0] + text[-1] for text in Path("n.jsonl").read_text().splitlines()] == ["{}", "{}", "{t", "{}"]


def test_each_rank_has_a_line_with_its_numbers(run: Run) -> None:
    for rank, length in ((0, 1000), (1, 2000)):
        info = {"distributedInfo": {"rank": rank, "world_size": 2}}
        trace = json.loads(document([step(1, 0, length), x("aten::mm", 10, 30)])) | info
        Path(f"rank{rank}.json").write_text(json.dumps(trace))
    assert run("analyze", "rank0.json", "rank1.json", "--select", "GAP101", "--summary-jsonl", "n.jsonl") == 0
    lines = [json.loads(text) for text in Path("n.jsonl").read_text().splitlines()]
    assert [(one["rank"], one["metrics"]["step_time_ms"], one["world_size"]) for one in lines] == [
        (None, 2.0, 2), (0, 1.0, 2), (1, 2.0, 2),
    ]  # fmt: skip
    assert "1 step, median 1.50 ms (rank 1: 2.00 ms)" in run.out


def test_a_configuration_that_comes_with_the_inputs_does_not_change_what_trend_judges(run: Run) -> None:
    Path("runs").mkdir()
    Path("runs/habana_perf_tool.toml").write_text('exclude = ["*"]\n')
    Path("runs/run.json").write_bytes(TRACE)
    assert run("analyze", "runs") == 2
    assert run("analyze", "runs", "--select", "GAP101", "--summary-jsonl", "n.jsonl") == 0
    assert Path("n.jsonl").exists()


@pytest.mark.parametrize("name", ["run.json", "other.json", "-"])
def test_only_summary_files_are_appended_to(name: str, run: Run) -> None:
    Path("run.json").write_bytes(TRACE)
    Path("other.json").write_bytes(b'{"a": 1}')
    assert run("analyze", "run.json", "--summary-jsonl", name) == 2
    assert (Path("run.json").read_bytes(), Path("other.json").read_bytes()) == (TRACE, b'{"a": 1}')
    assert not Path("-").exists()


def test_the_page_has_axes_with_numbers_and_dates(run: Run) -> None:
    write([204, 215, 103, 102, 104, 103])
    assert run("trend", "n.jsonl", "--output-format", "html") == 0
    assert run.out.count('class="tick"') == 5
    for text in ("0 ns", "215 ms", "2026-01-01 02:00", "2026-01-06 02:00"):
        assert f">{text}</text>" in run.out


def test_a_run_is_called_by_its_folder_and_the_time_of_its_recording(run: Run) -> None:
    day = 1_767_225_600_000_000
    for number, folder in enumerate(("second", "first")):
        Path(folder).mkdir()
        at = day - number * 3600e6
        Path(folder, f"h_1.17{number}0000000000000000.pt.trace.json").write_bytes(
            document([step(1, at, 1000), x("aten::mm", at + 10, 30)])
        )
        assert run("analyze", folder, "--select", "GAP101", "--summary-jsonl", "n.jsonl") == 0

    assert run("trend", "n.jsonl", "--output-format", "json") == 0
    points = json.loads(run.out)["runs"]
    assert [(point["name"], point["time"]) for point in points] == [
        ("first", "2025-12-31T23:00:00Z"), ("second", "2026-01-01T00:00:00Z"),
    ]  # fmt: skip
