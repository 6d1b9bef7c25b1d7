"""The Gaudi rules on two samples: what they report about the bad run, and that they find nothing in the good one.

tests/test_samples.py checks which codes each sample gets.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from rule_cases import GAUDI_DIR, pack

from perftool.engine.analysis import analyze
from perftool.model.report import Finding, Report

SAMPLES = Path(__file__).parents[2] / "sample_traces"
GAUDI_CODES = {path.stem for path in GAUDI_DIR.glob("*.toml")}
RULES = [rule for code, rule in pack().items() if code in GAUDI_CODES | {"RCP102"}]


@cache
def report(name: str) -> Report:
    return analyze([str(SAMPLES / name)], RULES)


def findings(name: str) -> list[Finding]:
    return [finding for finding in report(name).findings if finding.code in GAUDI_CODES]


def test_the_optimised_run_is_healthy():
    assert findings("gaudi2_optimised") == []
    assert "TRC001" not in {finding.code for finding in report("gaudi2_optimised").findings}


def test_log_metrics_and_trace_of_one_run_agree():
    fallbacks = {f.subject: f.evidence for f in findings("gaudi2_unoptimised") if f.code == "FBK101"}

    assert {op: (row["count"], row["in_steps"]) for op, row in fallbacks.items()} == {
        "aten::digamma": (14, 6),
        "aten::nonzero": (7, 3),
    }
    assert {op: row["dtypes"] for op, row in fallbacks.items()} == {
        "aten::digamma": "float32",
        "aten::nonzero": "bool",
    }


def test_the_compilations_of_the_steps_are_counted_once_and_named():
    found = [f for f in findings("gaudi2_unoptimised") if f.code == "RCP101"]
    causes = [f for f in report("gaudi2_unoptimised").findings if f.code == "RCP102"]

    assert [(f.evidence["compilations"], f.evidence["compile_ns"], f.evidence["source"]) for f in found] == [
        (2, 32_624_000, "trace")
    ]
    # Only the finding that explains the compilations has their time as its gain.
    assert found[0].gain is None
    assert [f.gain and f.gain.ns_per_step for f in causes] == [32_624_000 // 3]
    assert found[0].evidence["recipes"] == (
        "HabanaFusedOpLazy_10, HabanaFusedOpLazy_11 (same kernels as HabanaFusedOpLazy_0)"
    )


def test_the_finding_on_graphs_gives_the_reasons_for_cuts():
    found = [f for f in findings("gaudi2_unoptimised") if f.code == "RCP107"]

    assert [(f.evidence["per_step"], f.evidence["histogram"]) for f in found] == [
        (16.0, "local scalar 77, cpu fallback 21, host step marker 14")
    ]


def test_the_log_alone_and_the_metrics_alone_give_their_findings():
    log = analyze([], RULES, logs=[str(SAMPLES / "gaudi2_unoptimised" / "console.log")])
    metrics = analyze([], RULES, logs=[str(SAMPLES / "gaudi2_unoptimised" / "metrics-rank0.json")])

    assert {f.code for f in log.findings} >= {"FBK101", "RCP107"}
    assert {f.code for f in metrics.findings} >= {"FBK101", "RCP101"}
    assert all(f.gain is None and f.location.step is None for f in (*log.findings, *metrics.findings))
