"""Hand-made lint reports for the tests of the output formats."""

from __future__ import annotations

from dataclasses import replace

from perftool.engine.analysis import empty_report
from perftool.engine.rules.pack import builtin_folder, load_pack
from perftool.model.inputs import InputFile
from perftool.model.lint import LintFinding, LintReport
from perftool.model.report import Finding, Gain, Location, Verdict

# A hostile name, with control characters, markup, separators and half a surrogate pair.
HOSTILE = 'op\x00\x1b[31m\r\n::error::%0A,:|<b>&"`_*\u2028\ud800end'
RULES = tuple(rule for rule in load_pack(builtin_folder()) if rule.code in ("GAP101", "SYN101", "TRC000", "TRC001"))


def finding(code: str = "GAP101", message: str = "device idle 1.8 ms", **changes: object) -> LintFinding:
    """Return a finding of the rule ``code`` in step 3 of rank 0."""
    rule = next(rule for rule in RULES if rule.code == code)
    found = Finding(
        code=code, name=rule.name, severity=rule.severity, confidence=rule.confidence, subject="rank 0",
        message=message, why=rule.why, fix="Do less.", rank=0, location=Location("MME", 3, 1_000, 20),
        related=(Location(None, 3, 1_000, 20, "a gap"),), evidence={"idle_ns": 1_800_000},
        gain=Gain(1_800_000, 0.5), fingerprint="0123456789abcdef", benchmark=None,
    )  # fmt: skip
    return LintFinding(replace(found, **changes), "runs/a.json")  # type: ignore[arg-type]


def report(*findings: LintFinding) -> LintReport:
    """Return a lint report with ``findings`` in a single trace, ``runs/a.json``."""
    read = InputFile("runs/a.json", "trace", 0, 10, 2, "ok")
    whole = replace(empty_report(RULES), inputs=(read,), not_applicable=(), verdict=Verdict("It idles.", "", ()))
    return LintReport(replace(whole, findings=tuple(one.finding for one in findings)), findings, (), bool(findings))
