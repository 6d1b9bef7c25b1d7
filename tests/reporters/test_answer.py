"""The report on one screen: its size, its content, and what only --full shows."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import wrap

import pytest
from builders.reports import finding, reported, starved

from perftool.engine.analysis import analyze, empty_report
from perftool.model.inputs import ImportIssue
from perftool.model.report import Gain, Location, Overlap, Report, Source
from perftool.reporters.console import make_console
from perftool.reporters.terminal.answer import MOST_LINES, print_answer
from perftool.reporters.terminal.choice import Choice

SAMPLES = Path(__file__).parents[2] / "sample_traces"
ONE_RANK = ("gaudi2_unoptimised", "cpu/many_small_ops.json.gz", "gaudi2_unoptimised/console.log",
            "benchmarks/scalar_reads/naive")  # fmt: skip


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return a function that renders the report for a terminal of ``width`` columns (80 by default), or for a pipe if
    ``width`` is None.
    """

    def lines(report: Report, choice: Choice | None = None, columns: int | None = 80) -> list[str]:
        monkeypatch.delenv("COLUMNS", raising=False)
        if columns:
            monkeypatch.setenv("COLUMNS", str(columns))
        out = io.StringIO()
        print_answer(report, make_console("never", file=out), choice)
        return out.getvalue().splitlines()

    return lines


@pytest.mark.parametrize("sample", ONE_RANK)
def test_the_answer_fits_one_screen(sample: str, shown: Callable[..., list[str]]) -> None:
    lines = shown(analyze([str(SAMPLES / sample)]))

    assert len(lines) <= MOST_LINES
    assert [line for line in lines if len(line) > 80 or line != line.rstrip()] == []


def test_what_qualifies_the_figures_is_below_the_table(shown: Callable[..., list[str]]) -> None:
    report = reported(starved(), findings=[finding()])
    verdict = replace(report.verdict, caveats="The machine was overloaded.", steady="The steady steps: it idles.")

    lines = shown(replace(report, verdict=verdict))

    assert verdict.detail not in " ".join(lines)
    table = next(number for number, line in enumerate(lines) if line.startswith("What to change"))
    assert lines.index("The steady steps: it idles.") < table < lines.index("The machine was overloaded.")


def test_the_first_sentences_of_the_context_are_shown(shown: Callable[..., list[str]]) -> None:
    report = reported(starved(), findings=[finding()])
    verdict = replace(report.verdict, context=(f"First {'a' * 410}.", f"Second {'b' * 40}.", "Third."))
    text = " ".join(shown(replace(report, verdict=verdict)))
    short = " ".join(shown(replace(report, verdict=replace(verdict, context=verdict.context[1:]))))

    assert "First" in text
    assert "Second" not in text
    assert "Second" in short
    assert "Third." in short


def test_every_part_is_in_its_place(shown: Callable[..., list[str]]) -> None:
    report = reported(starved(), findings=[finding()])

    assert shown(report) == [
        "rank0.json   cuda   3 steps, median 9.99 ms   busy 33.1 %",
        "",
        *wrap(report.verdict.headline, 80),
        "",
        "████████████████████████▓▓░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░:::··",
        "█ compute 30.0 %  ▓ copies and fills 3.0 %",
        "idle 66.9 %:  ░ waiting for data 60.2 %  : between ops 4.1 %  other 2.6 %",
        "",
        "What to change           gain per step",
        "GAP901 slow-loader  ≤ 6.00 ms (60.0 %)",
        "       Load ahead",
        "",
        "For lines of code: record --stacks, or with_stack=True (slows the run down).",
        "Next: habana_perf_tool rule GAP901 explains row 1; --full prints all tables.",
    ]


def test_a_header_that_is_too_long_continues_on_a_second_line(shown: Callable[..., list[str]]) -> None:
    report = reported(starved(), findings=[finding()])
    report = replace(
        report, device=replace(report.device, name="A device with a very long name of 60 characters, as some have")
    )

    assert shown(report)[:3] == [
        "rank0.json   A device with a very long name of 60 characters, as some have",
        "3 steps, median 9.99 ms   busy 33.1 %",
        "",
    ]


def test_lines_of_code_are_not_requested_without_a_recorded_host(shown: Callable[..., list[str]]) -> None:
    report = reported(starved(), findings=[finding()])
    assert not any("with_stack" in line for line in shown(replace(report, top_ops=())))


def test_a_finding_names_the_line_that_most_of_its_time_is_spent_in(shown: Callable[..., list[str]]) -> None:
    sources = (Source("train.py", 33, "main", 0.7), Source("data.py", 7, "load", 0.3))
    report = reported(starved(), findings=[finding(location=Location(sources=sources))])

    assert "GAP901 slow-loader  ≤ 6.00 ms (60.0 %)  train.py:33 main" in shown(report)


def test_a_predicted_gain_is_not_shown_as_a_bound(shown: Callable[..., list[str]]) -> None:
    report = reported(starved(), findings=[finding(gain=Gain(5_000_000, 0.5, "predicted"))])

    assert "GAP901 slow-loader  5.00 ms (50.0 %)" in shown(report)


def test_findings_of_one_rule_with_one_fix_take_one_row(shown: Callable[..., list[str]]) -> None:
    other = finding(subject="other", fingerprint="fedcba9876543210", gain=Gain(1_000_000, 0.1))
    report = reported(starved(), findings=[finding(), other])

    assert "GAP901 slow-loader x 2  ≤ 6.00 ms (60.0 %)" in shown(report)


def test_a_row_of_disjoint_findings_shows_the_sum_of_their_gains(shown: Callable[..., list[str]]) -> None:
    both = Gain(7_000_000, 0.7)
    first = finding(fix_gain=both, overlaps=(Overlap("GAP902", certain=True),))
    other = finding(
        subject="other", fingerprint="fedcba9876543210", gain=Gain(1_000_000, 0.1), fix_gain=both,
        overlaps=(Overlap("GAP902", certain=True), Overlap("GAP903", certain=True)),
    )  # fmt: skip
    lines = shown(reported(starved(), findings=[first, other]))

    assert "GAP901 slow-loader x 2  ≤ 7.00 ms (70.0 %)" in lines
    assert "       Load ahead (overlaps GAP902 and GAP903)" in lines


def test_findings_of_one_rule_with_different_fixes_take_a_row_each(shown: Callable[..., list[str]]) -> None:
    lines = shown(reported(starved(), findings=[finding(short_fix="Load ahead"), finding(short_fix="Stack")]))

    assert sum(line.startswith("GAP901 slow-loader  ") for line in lines) == 2


def test_a_row_names_the_rank_that_others_wait_for(shown: Callable[..., list[str]]) -> None:
    late = finding(subject="rank 6", evidence={"late_ranks": [6]})
    report = reported(starved(), findings=[late])

    assert any(line.startswith("GAP901 slow-loader: rank 6 ") for line in shown(report))


def test_findings_about_the_trace_are_not_shown_as_advice(shown: Callable[..., list[str]]) -> None:
    report = reported(starved(), findings=[finding(), finding(code="TRC105", name="profiler-overhead", advice=False)])
    lines = shown(report)

    assert [line for line in lines if "Also" in line] == ["Also: 1 more finding (profiler overhead)."]


def test_top_and_severity_choose_what_is_shown(shown: Callable[..., list[str]]) -> None:
    several = [
        finding(code=f"GAP9{n:02}", fingerprint=str(n), severity="warning" if n < 8 else "info") for n in range(12)
    ]
    report = reported(starved(), findings=several)

    def codes(choice: Choice | None) -> int:
        return sum(line.startswith("GAP9") for line in shown(report, choice))

    assert (codes(None), codes(Choice(10)), codes(Choice(10, "warning")), codes(Choice(1))) == (5, 10, 8, 1)
    assert "4 below --min-severity" in "\n".join(shown(report, Choice(None, "warning")))


def test_dropped_events_are_reported_first(shown: Callable[..., list[str]]) -> None:
    report = reported(starved())
    issues = tuple(ImportIssue(f"k{n}", 1, f"remark {n}") for n in range(4))
    lines = shown(replace(report, inputs=(replace(report.inputs[0], issues=issues),)))

    assert lines[1:4] == ["rank0.json: remark 0", "rank0.json: remark 1",
                          "and 2 more notes on the inputs; --full prints them"]  # fmt: skip


def test_in_a_pipe_a_finding_is_one_line(shown: Callable[..., list[str]]) -> None:
    report = reported(starved(), findings=[finding(short_fix="Load ahead, " * 30)])
    lines = shown(report, columns=None)

    assert len([line for line in lines if line.startswith("GAP901") and "Load ahead" in line]) == 1
    assert [line for line in lines if line != line.rstrip()] == []


def test_an_encoding_without_blocks_gets_letters() -> None:
    report = reported(starved(), findings=[finding()])
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    print_answer(report, make_console("never", file=out))
    out.flush()
    text = out.buffer.getvalue().decode("ascii")

    assert "####" in text
    assert "up to 6.00 ms (60.0 %)" in text
    assert "\\u" not in text


def test_answers_without_input_and_without_findings(shown: Callable[..., list[str]]) -> None:
    assert shown(empty_report([]))[:3] == ["no input", "", "There is no input."]
