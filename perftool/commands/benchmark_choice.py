"""Selects the benchmarks to run: by name, by rule, or from a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perftool.errors import InputError, PerfToolError

if TYPE_CHECKING:
    from perftool.bench.harness.case import Benchmark

_LARGEST_REPORT = 256 << 20


def choose(names: Sequence[str], codes: Sequence[str], saved: Sequence[str] | None) -> list[str]:
    """Choose benchmarks by ``names``, by rule ``codes`` and by the names in a ``saved`` report; by default all.

    Raise PerfToolError for an unknown name, and for a rule without a benchmark.
    """
    from perftool.bench import benchmark_names

    known = benchmark_names()
    wanted = [*names, *(name for code in codes for name in _of_rule(code, known))]
    for name in wanted:
        if name not in known:
            raise PerfToolError(f"there is no benchmark {name!r}; the benchmarks are {', '.join(known)}")
    if not wanted and saved is None:
        return known
    # A report of another version may name a removed benchmark.
    return list(dict.fromkeys([*wanted, *(name for name in saved or () if name in known)]))


def _of_rule(code: str, known: Sequence[str]) -> list[str]:
    from perftool.bench import find_benchmark
    from perftool.engine.rules.pack import load_packs

    rule = next((rule for rule in load_packs() if code in (rule.code, rule.name)), None)
    if rule is None:
        raise PerfToolError(f"there is no rule {code!r}; 'rule --all' lists the rules")
    found = [name for name in known if name == rule.benchmark or rule.code in find_benchmark(name).rules]
    if not found:
        raise PerfToolError(f"{rule.code} has no benchmark")
    return found


def named_in(path: str) -> list[str]:
    """List the benchmarks that the findings in the JSON report ``path`` name, in order.

    Raise InputError if ``path`` contains no report.
    """
    from perftool.readers.files.small_file import read_small
    from perftool.readers.text.bounded_json import parsed

    try:
        data: Any = parsed(read_small(Path(path), _LARGEST_REPORT))
        found = [finding["benchmark"] for finding in data["findings"]]
    except OSError as error:
        raise InputError(f"{path}: cannot read ({error.strerror or error})") from None
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path}: not a JSON report of habana_perf_tool") from None
    return list(dict.fromkeys(name for name in found if isinstance(name, str)))


def left_out(names: Sequence[str]) -> str:
    """Say what ``--quick`` skips in the benchmarks ``names``."""
    from perftool.bench import find_benchmark

    found = [find_benchmark(name) for name in names]
    sizes = sum(len(benchmark.sizes) - 1 for benchmark in found)
    heaps = sum(benchmark.tuned_heap for benchmark in found)
    parts = [f"further sizes ({sizes})"] if sizes else []
    parts += [f"runs with a tuned heap ({heaps})"] if heaps else []
    parts += ["rounds beyond the sixth, and pairs of processes beyond the first"]
    text = f"--quick left out {'; '.join(parts)}."
    slow = [benchmark for benchmark in found if benchmark.not_quick]
    neither, simulated = ([each for each in slow if bool(each.script) is by_script] for by_script in (False, True))
    groups = {"Neither measured nor simulated": neither, "Simulated but not measured": simulated}
    lines = [f" {what}: {_named(group)}." for what, group in groups.items() if group]
    return "".join([text, *lines])


def _named(benchmarks: Sequence[Benchmark]) -> str:
    return ", ".join(f"{each.name} ({each.not_quick})" for each in benchmarks)
