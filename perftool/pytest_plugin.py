"""The pytest plugin: a fixture that lints the traces recorded by a test.

The analysis is imported only if a test uses ``lint_trace``.
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
    "fail_on": "lowest severity that fails the test: error, warning (the default), info, never",
    "baseline": "file of accepted findings",
    "config": "configuration file of habana_perf_tool",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command line flags, each with an ini key for its default."""
    group = parser.getgroup("habana_perf_tool", "habana_perf_tool: lint traces that tests record")
    for name, text in _OPTIONS.items():
        group.addoption(f"--perf-{name.replace('_', '-')}", dest=f"perf_{name}", default=None, help=text)
        parser.addini(f"perf_{name}", text, default="")


def pytest_configure(config: pytest.Config) -> None:
    """Reject an invalid ``--perf-fail-on`` before any test runs."""
    chosen = _option(config, "fail_on")
    if not chosen:
        return
    from perftool.model.choices import FAIL_ON

    if chosen not in FAIL_ON:
        raise pytest.UsageError(f"--perf-fail-on: {chosen!r} is not one of {', '.join(FAIL_ON)}")


@pytest.hookimpl
def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print one line per test whose traces had findings."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    # Sections are part of a report, so this also works with xdist workers.
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
    """Lints traces for one test."""

    request: pytest.FixtureRequest

    def __call__(
        self, *paths: str | PathLike[str], select: Sequence[str] = (), budgets: Iterable[str] = ()
    ) -> LintReport:
        """Lint ``paths`` as the ranks of one run, and fail the test where ``lint`` would fail a build.

        ``select`` and ``budgets`` have command line syntax. Return the report if the test does not fail. Raise
        PerfToolError for unreadable inputs and invalid settings.
        """
        __tracebackhide__ = True
        result = _lint([str(path) for path in paths], self.request.config, select, budgets)
        text = _text(result)
        if result.findings:
            # A failed test already shows its findings, so its section contains only the summary line.
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
    from perftool.commands.lint import linted, plan_of
    from perftool.commands.options import CliSettings
    from perftool.commands.session import Session

    file = _option(config, "config")
    wanted = {"select": list(select), "fail-on": _option(config, "fail_on"), "baseline": _option(config, "baseline")}
    set_values = {key: value for key, value in wanted.items() if value}
    session = Session(CliSettings(config=(file,) if file else (), quiet=True, keys=set_values), paths, gate=True)
    return linted(session, session.inputs(paths), plan_of(session, config.rootpath, list(budgets), "lint_trace"))


def _text(result: LintReport) -> str:
    import io

    from perftool.reporters.console import make_console
    from perftool.reporters.lint.text import print_lint

    out = io.StringIO()
    print_lint(result, make_console("never", file=out))
    return out.getvalue().rstrip()


def _option(config: pytest.Config, name: str) -> str | None:
    """Return the value of the flag, or else of the ini key. Paths in the ini file are relative to its folder."""
    flag: str | None = config.getoption(f"perf_{name}")
    written = str(config.getini(f"perf_{name}"))
    if flag or not written:
        return flag
    if name == "fail_on":
        return written
    return str((config.inipath.parent if config.inipath else config.rootpath) / written)
