"""Tests the pytest plugin in nested runs of pytest."""

from __future__ import annotations

import json
import shutil
from importlib.metadata import entry_points
from pathlib import Path

# Imported here so that nested runs of pytest do not import them again, because extension modules fail on a second
# import.
import duckdb  # noqa: F401
import numpy as np  # noqa: F401
import pytest

import perftool.engine.gate.lint  # noqa: F401

pytest_plugins = ["pytester"]
SAMPLES = Path(__file__).parents[2] / "sample_traces"


@pytest.fixture
def outcome(pytester: pytest.Pytester):
    """Return a function that runs a test with ``lint_trace`` on ``trace``, by default with one rule."""
    # pytest finds an installed plugin by its entry point. In a bare checkout, the plugin must be loaded with -p.
    loaded = any(point.name == "habana_perf_tool" for point in entry_points(group="pytest11"))

    def run(trace: str, *arguments: str, call: str = ", select=['GAP101']") -> pytest.RunResult:
        pytester.makepyfile(f"def test_speed(lint_trace):\n    lint_trace({trace!r}{call})\n")
        named = () if loaded else ("-p", "perftool.pytest_plugin")
        return pytester.runpytest_inprocess(*named, *arguments)

    return run


UNOPTIMISED, OPTIMISED = str(SAMPLES / "gaudi2_unoptimised"), str(SAMPLES / "gaudi2_optimised")


def test_a_good_trace_passes_without_output(outcome) -> None:
    result = outcome(OPTIMISED)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*habana_perf_tool ===*")


def test_a_slow_trace_fails_the_test_that_made_it(outcome) -> None:
    result = outcome(UNOPTIMISED)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*GAP101 ?warning? *", "*= habana_perf_tool =*", "*test_speed: Found *"])


@pytest.mark.parametrize(
    ("arguments", "call", "outcomes"),
    [
        (["--perf-fail-on", "never"], ", select=['GAP101']", {"passed": 1}),
        ([], ", select=['GAP101']", {"failed": 1}),
        ([], ", select=['TRC']", {"passed": 1}),
        ([], ", select=['TRC'], budgets=['step_time_ms<=1']", {"failed": 1}),
    ],
)
def test_options_and_arguments(outcome, arguments: list[str], call: str, outcomes: dict[str, int]) -> None:
    outcome(UNOPTIMISED, *arguments, call=call).assert_outcomes(**outcomes)


def test_the_ini_file_is_used_and_its_paths_are_relative_to_it(outcome, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nperf_fail_on = info\nperf_baseline = accepted.json\n")
    pytester.makefile(".json", accepted=json.dumps({"version": 1, "findings": []}))
    outcome(UNOPTIMISED).assert_outcomes(failed=1)
    outcome(UNOPTIMISED, "--perf-fail-on", "never").assert_outcomes(passed=1)


def test_a_configuration_that_comes_with_the_trace_does_not_turn_the_gate_off(outcome, tmp_path: Path) -> None:
    traces = shutil.copytree(UNOPTIMISED, tmp_path / "traces")
    config = traces / "habana_perf_tool.toml"
    config.write_text("exit-zero = true\n")
    outcome(str(traces)).assert_outcomes(failed=1)
    outcome(str(traces), "--perf-config", str(config)).assert_outcomes(passed=1)


def test_a_trace_that_is_a_broken_link_fails_the_test(outcome, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    shutil.copy(SAMPLES / "gaudi2_optimised" / "rank0.pt.trace.json.gz", tmp_path / "folder")
    (tmp_path / "folder" / "rank1.json").symlink_to("nothing")
    result = outcome(str(tmp_path / "folder"), call=", select=['TRC101']")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*rank1.json: not read: it is a broken link; *"])


def test_a_wrong_value_is_a_usage_error(outcome) -> None:
    result = outcome(OPTIMISED, "--perf-fail-on", "bad")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--perf-fail-on: 'bad' is not one of error, warning, info, never*"])


def test_the_fixture_is_documented(outcome) -> None:
    outcome(OPTIMISED, "--fixtures").stdout.fnmatch_lines(["lint_trace*", "*Lint traces recorded by the test*"])
