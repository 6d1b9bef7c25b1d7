"""Predicted against measured: the table of docs/gains.md, from pairs of traces before and after a fix.

usage: python docs/calibrate.py [BEFORE AFTER CODE]...     without arguments: the pairs of sample_traces/benchmarks
"""

from __future__ import annotations

import re
import statistics
import sys
from pathlib import Path

from perftool import analyze

ROOT = Path(__file__).parent.parent
PAIRS = ROOT / "sample_traces" / "benchmarks"
# Of the benchmarks whose pairs are recorded or simulated here, the rule whose advice the second form follows.
CODES = {
    "autocast": "PRC101", "cpu_fallback": "FBK101", "dataloader_workers": "GAP102", "hpu_graphs": "GAP103",
    "pinned_memory": "CPY101", "recipe_cache": "RCP101", "scalar_reads": "SYN101", "small_copies": "CPY103",
    "loop_constants": "RCP101", "fused_adamw": "FUS101",
}  # fmt: skip


def row(name: str, before: str, after: str, code: str) -> tuple[str, float | None]:
    """A line of the table, and the error as a share of the step before (None without a prediction)."""
    first, second = analyze([before]), analyze([after])
    found = next((finding for finding in first.findings if finding.code == code and finding.gain), None)
    was, now = first.summary["step_time_ms"].value, second.summary["step_time_ms"].value
    if found is None or found.gain is None or not was or now is None:
        return f"| {name} | {code} | {was or 0:.2f} | no gain stated | {now or 0:.2f} | |", None
    if found.gain.kind == "bound":
        return (
            f"| {name} | {code} | {was:.2f} | at least {was - found.gain.ns_per_step / 1e6:.2f} | {now:.2f} | |",
            None,
        )
    predicted = was - found.gain.ns_per_step / 1e6
    error = abs(predicted - now) / was
    return f"| {name} | {code} | {was:.2f} | {predicted:.2f} | {now:.2f} | {100 * error:.1f} % |", error


def main(arguments: list[str]) -> int:
    """Print the table, and the median and the worst error."""
    given = [(Path(arguments[at]).name, *arguments[at : at + 3]) for at in range(0, len(arguments) - 2, 3)]
    pairs = given or [(name, *map(str, _forms(PAIRS / name)), code) for name, code in CODES.items()]
    print("| pair | rule | before, ms | predicted, ms | after, ms | error, of the step before |")
    print("|---|---|---|---|---|---|")
    errors = []
    for pair in pairs:
        line, error = row(*pair)
        print(re.sub(r" +", " ", line))
        errors += [] if error is None else [error]
    if errors:
        print(f"\nmedian error {100 * statistics.median(errors):.1f} %, worst {100 * max(errors):.1f} % of the step")
    return 0


def _forms(folder: Path) -> tuple[Path, Path]:
    single = folder / "naive.json.gz"
    return (single, folder / "advised.json.gz") if single.exists() else (folder / "naive", folder / "advised")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
