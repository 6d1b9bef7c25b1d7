"""The pytest plugin: a fixture that lints the traces a test records.

It does nothing unless a test asks for ``lint_trace``, and imports the analysis only then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from perftool.model.lint import LintReport

_SECTION = "habana_perf_tool"
_OPTIONS = {
    "fail_on": "severity from which a finding fails the test: error, warning (the default), info, never",
    "baseline": "file of accepted findings",
    "config": "configuration file of habana_perf_tool",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Flags, and an ini key for each that is used without the flag."""
    group = parser.getgroup("habana_perf_tool", "habana_perf_tool: lint traces that tests record")
    for name, text in _OPTIONS.items():
        group.addoption(f"--perf-{name.replace('_', '-')}", dest=f"perf_{name}", default=None, help=text)
        parser.addini(f"perf_{name}", text, default="")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a wrong value before any test runs."""
    chosen = _option(config, "fail_on")
    if not chosen:
        return
    from perftool.model.choices import FAIL_ON

    if chosen not in FAIL_ON:
        raise pytest.UsageError(f"--perf-fail-on: {chosen!r} is none of {', '.join(FAIL_ON)}")


@pytest.hookimpl
def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line per test whose traces had findings."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    # The sections travel with the reports, also from the workers of xdist.
    found = {
        report.nodeid: text
        for report in reports
        for title, text in getattr(report, "sections", ())
        if _SECTION in title
    }
    if found:
        terminalreporter.write_sep("=", "habana_perf_tool")
        for node, text in sorted(found.items()):
            terminalreporter.write_line(f"{node}: {text.splitlines()[-1]}")


@dataclass(frozen=True)
class TraceLinter:
    """Lints traces on behalf of one test."""

    request: pytest.FixtureRequest

    def __call__(
        self, *paths: str | PathLike[str], select: Sequence[str] = (), budgets: Iterable[str] = ()
    ) -> LintReport:
        """Lint ``paths`` together, as ranks of one run; fails the test as ``lint`` would fail a build.

        ``select`` and ``budgets`` are written as on the command line. Returns the report when nothing fails. Raises
        the program's own errors for inputs that cannot be read and settings that are wrong.
        """
        __tracebackhide__ = True
        result = _lint([str(path) for path in paths], self.request.config, select, budgets)
        text = _text(result)
        if result.findings:
            # A failure shows the findings itself; the section then holds the line that sums them up.
            section = text.splitlines()[-1] if result.fails else text
            self.request.node.add_report_section("call", _SECTION, section)
        if result.fails:
            pytest.fail(text, pytrace=False)
        return result


@pytest.fixture
def lint_trace(request: pytest.FixtureRequest) -> TraceLinter:
    """Lint traces recorded by the test: ``lint_trace(path, budgets=["step_time_ms<=120"])``."""
    return TraceLinter(request)


def _lint(paths: list[str], config: pytest.Config, select: Sequence[str], budgets: Iterable[str]) -> LintReport:
    from dataclasses import replace

    from perftool.commands.options import Given
    from perftool.commands.prepare import prepare
    from perftool.engine.gate.budgets import budget_option
    from perftool.engine.gate.lint import LintPlan, lint_inputs
    from perftool.readers.files.discover import find_inputs

    given = Given(select=list(select) or None, fail_on=_option(config, "fail_on"), baseline=_option(config, "baseline"))
    file = _option(config, "config")
    prepared = prepare(paths, [file] if file else [], False, given)
    limits = tuple(budget_option(text, "lint_trace") for text in budgets)
    settings = replace(prepared.settings, budgets=prepared.settings.budgets + limits)
    plan = LintPlan(prepared.rules, settings, config.rootpath)
    return lint_inputs(find_inputs(paths, (), settings.exclude), plan)


def _text(result: LintReport) -> str:
    import io

    from perftool.reporters.console import make_console
    from perftool.reporters.lint.text import print_lint

    out = io.StringIO()
    print_lint(result, make_console("never", file=out))
    return out.getvalue().rstrip()


def _option(config: pytest.Config, name: str) -> str | None:
    """The flag, or the ini key when the flag is not given; paths of the ini are relative to its folder."""
    flag: str | None = config.getoption(f"perf_{name}")
    written = str(config.getini(f"perf_{name}"))
    if flag or not written:
        return flag
    if name == "fail_on":
        return written
    return str((config.inipath.parent if config.inipath else config.rootpath) / written)
