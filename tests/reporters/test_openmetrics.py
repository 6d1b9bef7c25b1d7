"""Checks OpenMetrics text line by line against the rules of the format (OpenMetrics 1.0, text format)."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from builders.reports import starved
from events import document, step, x

from perftool.engine.analysis import analyze
from perftool.model.report import Report
from perftool.reporters.openmetrics import render_openmetrics

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
TEXT = r'(?:[^"\\\n]|\\[n"\\])*'
SAMPLE = re.compile(rf'({NAME})(?:\{{((?:{NAME}="{TEXT}",?)*)\}})? (-?[0-9.]+(?:e[+-]?[0-9]+)?)')
META = re.compile(rf"# (TYPE|UNIT|HELP) ({NAME}) ({TEXT})")
# Suffixes of samples of other types. The name of a gauge must not end in any of them.
RESERVED = ("_total", "_created", "_count", "_sum", "_bucket", "_gcount", "_gsum")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("ranks")
    paths = []
    for rank in (0, 1):
        paths.append(str(folder / f"rank{rank}.json"))
        events = starved() if rank else [step(1, 0, 1000), x("aten::mm", 10, 30)]
        (folder / f"rank{rank}.json").write_bytes(document(events))
    return analyze(paths)


def parsed(text: str) -> dict[str, dict[str, float]]:
    """Return the samples by family and labels. Fail if the text breaks a rule of the format."""
    assert text.endswith("\n# EOF\n")
    families: dict[str, dict[str, float]] = {}
    said: dict[str, dict[str, str]] = {}
    for line in text.splitlines()[:-1]:
        if meta := META.fullmatch(line):
            key, name, value = meta.groups()
            # All lines of a family are together, and its description comes first and only once.
            assert not families.get(name), line
            assert list(families)[-1:] == [name] or name not in families, line
            families.setdefault(name, {})
            assert key not in said.setdefault(name, {}), line
            said[name][key] = value
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample is not None, line
        name, labels, value = sample.groups()
        assert list(families)[-1] == name, line
        assert (labels or "") not in families[name], line
        families[name][labels or ""] = float(value)
    for name, facts in said.items():
        assert (facts["TYPE"], name.endswith(RESERVED)) == ("gauge", False)
        assert "UNIT" not in facts or name.endswith(f"_{facts['UNIT']}")
    return families


def test_the_text_follows_the_format_and_has_base_units(report: Report) -> None:
    found = parsed(render_openmetrics(report).decode())
    assert found["habana_perf_tool_rank_step_time_seconds"] == {'rank="0"': 0.001, 'rank="1"': 0.00999}
    assert found["habana_perf_tool_step_time_seconds"][""] == report.summary["step_time_ms"].value / 1000
    severities = found["habana_perf_tool_findings"]
    assert list(severities) == ['severity="error"', 'severity="warning"', 'severity="info"']
    assert sum(severities.values()) == sum(found["habana_perf_tool_rule_findings"].values()) == len(report.findings) > 0


def test_missing_numbers_are_left_out(report: Report) -> None:
    absent = [name for name, metric in report.summary.items() if metric.value is None]
    assert "mfu_ratio" in absent
    assert not any(f"habana_perf_tool_{name}" in parsed(render_openmetrics(report).decode()) for name in absent)


def test_names_are_escaped(report: Report) -> None:
    named = replace(report, device=replace(report.device, name='a "b" \\ c\nd \ud800'))
    text = render_openmetrics(named).decode()
    assert 'device="a \\"b\\" \\\\ c\\nd \\\\ud800"' in text
    parsed(text)
