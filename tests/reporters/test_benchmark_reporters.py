from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from builders.benchmark_results import FAILED, MACHINE, SIMULATED, TWICE, VALIDATED, measurement
from rich.console import Console

from perftool.model.benchmark import FormFigures, Ratio
from perftool.reporters.benchmark.document import render_benchmarks_json
from perftool.reporters.benchmark.markdown import render_benchmarks_markdown
from perftool.reporters.benchmark.table import COLUMNS, ValidationTable, validation_cells
from perftool.reporters.benchmark.text import print_result, print_validation
from perftool.reporters.console import make_console


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output to a pipe is not wrapped."""
    monkeypatch.delenv("COLUMNS", raising=False)


def test_a_block_shows_the_measurement_and_the_findings() -> None:
    out = io.StringIO()
    print_result(VALIDATED, make_console("never", file=out))

    assert out.getvalue() == (
        "fused_adamw  AdamW over all tensors at once  validated\n"
        "  naive    a loop\n"
        "  advised  one call\n"
        "  small: 20.0 ms -> 10.0 ms; 2.00x speedup, 1.90 to 2.10 at 97% (cpu time, 6 rounds, threads: 1); "
        "memory 4.00 KiB -> 1.00 KiB; largest difference 1.0e-07\n"
        "  large: 20.0 ms -> 10.0 ms; 1.00x speedup, 0.90 to 1.10 at 97% (cpu time, 6 rounds, threads: 1); "
        "memory 4.00 KiB -> 1.00 KiB; largest difference 1.0e-07; no win: the interval contains 1; "
        "noisy: the rounds vary by more than 20 %\n"
        "  FUS101 fires before, nothing after; "
        "estimated gain up to 60.0 %, predicted 55.0 %, measured 50.0 % of the step\n"
        "\n"
    )


def test_a_simulated_row_is_labelled() -> None:
    out = io.StringIO()
    print_result(SIMULATED, make_console("never", file=out))

    assert out.getvalue() == (
        "pinned_memory  Copies from pinned memory  simulated\n"
        "  simulated traces: CPY101 fires before, nothing after; newly fires: GAP103, RCP108; "
        "estimated gain up to 60.0 %, predicted 55.0 %, simulated 50.0 % of the step\n"
        "  needs a device with asynchronous execution\n"
        "\n"
    )


def test_the_validation_table_keeps_measured_and_simulated_apart() -> None:
    out = io.StringIO()
    print_validation([VALIDATED, SIMULATED, FAILED], make_console("never", file=out))
    lines = [line.split() for line in out.getvalue().splitlines()]

    # fmt: off
    assert lines == [
        ["status", "benchmark", "before", "after", "gain", "<=", "predicted", "measured", "simulated", "ratio",
         "interval", "torch", "difference"],
        ["validated", "fused_adamw", "FUS101", "nothing", "60.0", "%", "55.0", "%", "50.0", "%", "-", "2.00", "1.90",
         "to", "2.10", "-", "1.0e-07"],
        ["simulated", "pinned_memory", "CPY101", "nothing", "60.0", "%", "55.0", "%", "-", "50.0", "%", "-", "-", "-",
         "-"],
        ["newly", "fires:", "GAP103,", "RCP108"],
        ["needs", "a", "device", "with", "asynchronous", "execution"],
        ["failed", "sdpa", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"],
        ["sdpa:", "RuntimeError:", "a", "|", "b"],
        [],
        ["1", "validated,", "1", "simulated,", "1", "failed"],
    ]
    # fmt: on


def test_the_validation_table_fits_a_narrow_terminal() -> None:
    out = io.StringIO()
    print_validation([VALIDATED, SIMULATED], Console(file=out, width=80))
    shown = out.getvalue()
    assert "…" not in shown
    assert " ".join(shown.split()).endswith(" needs a device with asynchronous execution 1 validated, 1 simulated")


def test_a_row_is_printed_at_once_in_columns_that_fit_later_rows() -> None:
    out = io.StringIO()
    expected = [("fused_adamw", ("FUS101",)), ("a_longer_name_than_that", ("FUS101", "FUS102"))]
    table = ValidationTable(make_console("never", file=out), expected)
    table.add(VALIDATED)
    head, row = out.getvalue().splitlines()

    assert head.index("before") == row.index("FUS101") == 11 + len("a_longer_name_than_that") + 2
    assert head.index("after") - head.index("before") == len("FUS101, FUS102") + 2


def test_torchs_own_best_has_a_column() -> None:
    out = io.StringIO()
    best = replace(measurement(), torch=FormFigures("fused=True", 0.005, 0.01, None, 0), torch_ratio=TWICE)
    result = replace(VALIDATED, measurements=(best,))
    print_result(result, make_console("never", file=out))
    (row,) = json.loads(render_benchmarks_json([result], MACHINE))["benchmarks"]

    assert "  torch    fused=True\n" in out.getvalue()
    assert "; torch's own best 5.00 ms, 2.00x as fast as the naive form; " in out.getvalue()
    assert (row["torch"], row["torch_ratio"]) == (0.005, 2.0)
    assert validation_cells(result)[COLUMNS.index("torch")] == "2.00"


def test_one_pair_of_runs_has_no_interval() -> None:
    out = io.StringIO()
    once = replace(VALIDATED, measurements=(measurement(Ratio(2.0, 2.0, 2.0, 0.0)),))
    print_validation([once], make_console("never", file=out))
    print_result(once, make_console("never", file=out))
    row = json.loads(render_benchmarks_json([once], MACHINE))["benchmarks"][0]

    assert "2.00  one round " in out.getvalue()
    assert "2.00x as fast (one round only) (cpu time" in out.getvalue()
    assert (row["ratio"], row["ratio_interval"], row["measurements"][0]["verdict"]) == (2.0, None, "unknown")


def test_markdown_escapes_what_would_break_the_table() -> None:
    lines = render_benchmarks_markdown([FAILED, VALIDATED], MACHINE, "Nothing was left out.").decode().splitlines()

    assert lines[0] == (
        "Measured on a processor, 2 cores, Linux x86_64, Python 3.10.0, torch 2.13.0; load 0.5 at the start. "
        "Nothing was left out."
    )
    assert [line.count(" | ") for line in lines[2:6]] == [len(COLUMNS) - 1] * 4
    assert lines[4].endswith("| sdpa: RuntimeError: a \\| b |")
    assert lines[7:12] == [
        "1 validated, 1 failed.",
        "",
        "### fused_adamw",
        "",
        "AdamW over all tensors at once. Naive: `a loop`; advised: `one call`.",
    ]


def test_json_has_the_keys_of_the_contract() -> None:
    document = json.loads(render_benchmarks_json([VALIDATED, SIMULATED], MACHINE))
    measured, simulated = document["benchmarks"]

    assert document["version"] == 1
    assert {key: measured[key] for key in measured if key != "measurements"} == {
        "name": "fused_adamw",
        "rules": ["FUS101"],
        "summary": "AdamW over all tensors at once",
        "device": "cpu",
        "seconds": None,
        "status": "validated",
        "reason": None,
        "naive": 0.02,
        "advised": 0.01,
        "ratio": 2.0,
        "ratio_interval": [1.9, 2.1],
        "torch": None,
        "torch_ratio": None,
        "max_error": 1e-07,
        "gain_estimated": 0.6,
        "gain_predicted": 0.55,
        "gain_measured": 0.5,
        "gain_simulated": None,
        "ratio_simulated": None,
        "fired_before": ["FUS101"],
        "fired_after": [],
        "newly_fired": [],
    }
    assert document["machine"]["cores"] == 2
    assert simulated["newly_fired"] == ["GAP103", "RCP108"]
    assert [(each["size"], each["verdict"], each["noisy"]) for each in measured["measurements"]] == [
        ("small", "win", False),
        ("large", "no win", True),
    ]
    assert (simulated["naive"], simulated["ratio"], simulated["gain_measured"]) == (None, None, None)
    assert (simulated["gain_simulated"], simulated["ratio_simulated"]) == (0.5, 2.0)
