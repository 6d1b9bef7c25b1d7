"""Follows CONTRIBUTING.md's instructions to add a rule and a summary metric to a copy of the program."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from events import document, kernel, runtime, step

ROOT = Path(__file__).parent.parent
RULE = """
code = "GAP199"
name = "counts-kernels"
summary = "a run has kernels"
severity = "info"
confidence = "high"
status = "stable"
since = "0.1"
devices = "any"
[find]
sql = "SELECT 'kernels' AS subject, count(*) AS kernels FROM device_ops"
[text]
message = "{kernels} kernels"
why = "To count."
fix = "None."
example = "None"
references = []
"""
NUMBER = """
[[metric]]
name = "kernels"
unit = "count"
label = "kernels"
meaning = "kernels on the device"
"""


def added(copy: Path, file: str, text: str, before: str | None = None) -> None:
    """Insert ``text`` into ``file`` of the copy, ahead of ``before`` or at the end."""
    path = copy / file
    old = path.read_text(encoding="utf-8") if path.is_file() else ""
    assert before is None or old.count(before) == 1
    path.write_text(old + text if before is None else old.replace(before, text + before), encoding="utf-8")


def test_a_rule_takes_one_file_and_a_metric_two_lines(tmp_path: Path) -> None:
    for part in ("perftool", "rules"):
        shutil.copytree(
            ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__", "fused", "sim", "bench")
        )
    added(tmp_path, "rules/gaps/GAP199.toml", RULE)
    added(tmp_path, "perftool/metrics.toml", NUMBER)
    line = "    UNION ALL SELECT 'kernels', count(*) FROM device_ops\n"
    added(tmp_path, "perftool/tables/summary/summary.sql", line, before="    UNION ALL SELECT 'peak_memory_bytes'")
    header = tmp_path / "perftool/tables/summary/summary.sql"
    header.write_text(header.read_text(encoding="utf-8").replace("-- needs: steps,", "-- needs: steps, device_ops,"))
    (tmp_path / "trace.json").write_bytes(
        document([step(0, 0, 100), runtime("cudaLaunchKernel", 1, 5, 1), kernel("gemm", 10, 50, 1)])
    )

    run = [sys.executable, "-m", "perftool", "analyze", "trace.json", "--output-format", "json"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, check=False)

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert "1 kernels" in [found["message"] for found in report["findings"] if found["code"] == "GAP199"]
    assert report["summary"]["kernels"] == {"value": 1, "unit": "count", "numerator": None, "denominator": None}


def test_the_guide_names_files_that_exist() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:perftool|rules|tests|docs)/[\w/.]*)`", guide)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
