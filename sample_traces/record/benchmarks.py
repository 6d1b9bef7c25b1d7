"""Records both forms of the benchmarks: ``python sample_traces/record/benchmarks.py [NAMES]``. Needs PyTorch.

``benchmarks/<name>/naive*`` has the problem, ``benchmarks/<name>/advised*`` is the same work after the advice. What
they must yield is in the rules of each benchmark, and written to ``benchmarks/expected.toml``.
"""

from __future__ import annotations

import gzip
import re
import shutil
import sys
import tempfile
from pathlib import Path

from recording import FOLDER, anonymous, write_shareable

from perftool.bench import benchmark_names, find_benchmark
from perftool.bench.harness.case import FORM_NAMES, Benchmark
from perftool.bench.harness.launch import Plan
from perftool.proof import leave_traces

NO_TIMING = Plan(rounds=1, seconds=0.0, pairs=1)
TARGET = FOLDER.parent / "benchmarks"
HEAD = """# Written by record/benchmarks.py; tests/test_samples.py checks what is listed here.
#
# path       file or folder, below sample_traces/; a folder is analysed whole
# simulated  the traces come from the simulator, and every report must say so
# findings   codes that must be reported
# first      the first code reported must be one of these
# quiet      codes that must not be reported
"""
# The profiler's own numbers, which take a third of the file.
_NUMBERS = re.compile(r'(?<=[\d"\]]), *"Ev Idx": \d+|"(?:Record function id|Ev Idx)": \d+, *')
# For each benchmark, rules whose advice saves as much as that of the benchmark's own rule, and why.
EQUALLY_RIGHT: dict[str, dict[str, str]] = {
    "autocast": {"STP101": "the schedule of the simulated host leaves faster products little to give"},
    "batch_size": {
        "GAP103": "a captured graph saves the same host work for any batch",
        "GAP104": "the same captured graph, by its launches",
    },
    "fused_clip_norm": {"GAP103": "a captured graph takes the place of all ops of a step, those of clipping, too"},
    "hpu_graphs": {"BAT101": "eight rows are few: more of them would fill the same waiting time"},
    "mark_step": {
        "GAP103": "one captured graph takes the place of all that the marks cut, and of their ops",
        "GAP104": "the same captured graph, by its launches",
    },
    "recipe_cache": {"RCP102": "the new lengths are why the cache has no recipe; RCP105 names no gain"},
    "scalar_reads": {"GAP103": "every read also cuts the graph, and the cut graphs are what it would capture"},
    "small_copies": {"CPY102": "the same copies block: put off, they give back more than put together"},
    "static_graph": {"COL107": "gradients this small are better reduced together after the backward pass"},
}


def main(names: list[str]) -> None:
    """Record the benchmarks ``names``, or again those that are there, and list them."""
    with tempfile.TemporaryDirectory() as folder:
        for name in names or [name for name in benchmark_names() if (TARGET / name).exists()]:
            print(f"recording {name}", flush=True)
            place = Path(folder) / name
            place.mkdir()
            _record(find_benchmark(name), place)
    found = [find_benchmark(name) for name in benchmark_names() if (TARGET / name).exists()]
    entries = [_entry(benchmark, form) for benchmark in found for form in FORM_NAMES]
    (TARGET / "expected.toml").write_text("\n".join([HEAD, *entries]), encoding="utf-8")


def _record(benchmark: Benchmark, folder: Path) -> None:
    recorded = leave_traces(benchmark, "cpu", NO_TIMING, folder)
    target = TARGET / benchmark.name
    shutil.rmtree(target, ignore_errors=True)
    try:
        for form, paths in recorded.files.items():
            files = [file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
            for file in files:
                _share(file, target / f"{form}.json.gz" if len(files) == 1 else target / form / file.name)
    except ValueError as error:
        shutil.rmtree(target, ignore_errors=True)
        print(f"left out: {error}")


def _share(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix != ".gz":
        target.write_text(anonymous(file.read_text(encoding="utf-8")), encoding="utf-8")
        return
    raw = file.with_suffix("")
    text = gzip.decompress(file.read_bytes()).decode()
    raw.write_text(_NUMBERS.sub("", text), encoding="utf-8")
    write_shareable(raw, target)


def _entry(benchmark: Benchmark, form: str) -> str:
    folder = TARGET / benchmark.name / form
    path = folder if folder.is_dir() else folder.with_suffix(".json.gz")
    lines = ["[[sample]]", f'path = "{path.relative_to(TARGET.parent).as_posix()}"']
    lines += ["simulated = true"] if benchmark.script else []
    codes = ", ".join(f'"{code}"' for code in benchmark.rules)
    if form == "advised":
        return "\n".join([*lines, "findings = []", f"quiet = [{codes}]", ""])
    also = EQUALLY_RIGHT.get(benchmark.name, {})
    first = ", ".join(f'"{code}"' for code in (*benchmark.rules, *also))
    lines += [f"findings = [{codes}]", *(f"# {code}: {why}" for code, why in also.items()), f"first = [{first}]", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
