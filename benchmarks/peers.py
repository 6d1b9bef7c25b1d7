"""Compares this program with other readers of PyTorch traces, and measures the figures in docs/peers.md.

usage: python benchmarks/peers.py [PART...] --traces DIR [--python PROGRAM=PATH]... [--megabytes MB]

It installs nothing: each program runs with the interpreter for which it is installed. PART is speed, runs, numbers or
broken (default: all); the other parts of peers.json stay as they are. Run tools/docs/generate.py afterwards.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import os
import platform
import sys
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contenders import CONTENDERS
from measuring import Cost, Ran, run
from reading import Options, compare, environment, grown, processor, versions

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "benchmarks" / "peers.json"
ANALYSERS = ("perftool", "torch-tb-profiler", "HTA", "gpu-idle", "Perfetto")
# Time limit of a run in s. It is generous, because a run may have to wait on a shared machine.
LIMIT = 600.0
LARGE = ("h100_qwen_chat", "cuda_a100_train_rank0")
# The traces that are given to every program: path, the folder that contains it, description.
RUNS = (
    ("v100_dlrm_8ranks", "traces", "8 ranks of DLRM on V100"),
    ("mi300_vllm_decode.json.gz", "traces", "a vLLM decode on an MI300"),
    (
        "sample_traces/gaudi2_unoptimised/rank0.pt.trace.json.gz",
        "repository",
        "Gaudi 2, hand-made in the bridge's format",
    ),
    ("gaudi3_conv_hw_prof_accel0_001.csv", "traces", "the hardware trace of a Gaudi 3, as CSV"),
)
# A small, valid trace that every program can read.
BASE = "v100_dlrm_8ranks/rank0.pt.trace.json.gz"
NUMBERS = "cuda_a100_train_rank0.json.gz"
BAD_KERNELS, BAD_US = 7, 500_000


@dataclass(frozen=True)
class Places:
    """Where the traces are, the interpreter for each program, and a folder for unpacked traces."""

    traces: Path
    options: Options
    folder: Path

    def run(self, program: str, *paths: Path) -> Ran:
        """Run ``program`` once on the traces."""
        script = str(ROOT / "benchmarks" / "contenders.py")
        ran = run([self.options.python(program), script, program, *map(str, paths)], LIMIT, environment())
        print(f"  {program}: {ran.code} {ran.last_line[:100]}", file=sys.stderr, flush=True)
        return ran

    def plain(self, source: Path) -> Path:
        """Unpack a trace, because one of the programs cannot read packed traces."""
        target = self.folder / source.name.removesuffix(".gz")
        target.write_bytes(gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes())
        return target


def outcome(ran: Ran) -> dict[str, Any]:
    """Return the result of a run: exit code, whether it printed a traceback, last output line, CPU s and peak MiB."""
    traceback = "Traceback (most recent call last)" in ran.output and ran.code != 0
    says = textwrap.shorten(ran.last_line, 400, placeholder=" …")
    return {"code": ran.code, "traceback": traceback, "says": says, **_figures(ran.cost)}


def _figures(cost: Cost) -> dict[str, Any]:
    return {"cpu": round(cost.cpu, 2), "peak": round(cost.peak / 2**20)}


def speed(places: Places, megabytes: float) -> dict[str, Any]:
    """Grow two traces to a size and measure how every program analyses them in full; the programs take turns."""
    found = {}
    for name in LARGE:
        trace = places.folder / f"{name}.json"
        size = grown(places.traces / f"{name}.json.gz", trace, megabytes)
        rows = compare(trace, megabytes, places.options)
        found[name] = {"megabytes": round(size), "rows": {
            row.program: {"note": row.note, **(_figures(row.cost) if row.cost else {})} for row in rows
        }}  # fmt: skip
        trace.unlink()
    return found


def runs(places: Places, _: float) -> dict[str, Any]:
    """Return each program's cost, exit code and output on several kinds of runs."""
    found = {}
    for name, where, what in RUNS:
        source = (places.traces if where == "traces" else ROOT) / name
        files = sorted(source.iterdir()) if source.is_dir() else [source]
        paths = [places.plain(file) for file in files]
        print(what, file=sys.stderr, flush=True)
        found[what] = {program: outcome(places.run(program, *paths)) for program in ANALYSERS}
        for path in paths:
            path.unlink()
    return found


def numbers(places: Places, _: float) -> dict[str, Any]:
    """Return each program's output for a trace, before and after a few kernels are given an impossible duration."""
    plain = places.plain(places.traces / NUMBERS)
    trace = json.loads(plain.read_bytes())
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    for event in kernels[:: len(kernels) // BAD_KERNELS][:BAD_KERNELS]:
        event["dur"] = BAD_US
    bad = places.folder / "bad.json"
    bad.write_text(json.dumps(trace), encoding="utf-8")
    return {"kernels": len(kernels), "rows": {
        program: {"before": outcome(places.run(program, plain)), "after": outcome(places.run(program, bad))}
        for program in ANALYSERS if program != "Perfetto"
    }}  # fmt: skip


def broken(places: Places, _: float) -> dict[str, Any]:
    """Return how each program ends on copies of a trace that are corrupt in different ways."""
    whole = places.plain(places.traces / BASE).read_bytes()
    found = {}
    for what, damage in DAMAGES.items():
        path = places.folder / ("damaged.json.gz" if "gzip" in what and "named" not in what else "damaged.json")
        path.write_bytes(damage(whole))
        print(what, file=sys.stderr, flush=True)
        found[what] = {program: outcome(places.run(program, path)) for program in ANALYSERS}
        path.unlink()
    return found


def _events(change: Callable[[list[dict[str, Any]]], object]) -> Callable[[bytes], bytes]:
    """Return a function that corrupts a trace by changing its list of events."""

    def damage(whole: bytes) -> bytes:
        trace = json.loads(whole)
        change(trace["traceEvents"])
        return json.dumps(trace).encode()

    return damage


def _first(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    """Return a function that corrupts a trace by replacing the first ``old`` after the middle."""

    def damage(whole: bytes) -> bytes:
        at = whole.index(old, len(whole) // 2)
        return whole[:at] + new + whole[at + len(old) :]

    return damage


def _steps(events: list[dict[str, Any]]) -> None:
    events[:] = [event for event in events if not str(event.get("name")).startswith("ProfilerStep")]


def _texts(events: list[dict[str, Any]]) -> None:
    for event in events:
        event.update({key: str(event[key]) for key in ("ts", "dur") if key in event})


def _device(events: list[dict[str, Any]]) -> None:
    events[:] = [event for event in events if event.get("cat") not in ("kernel", "gpu_memcpy", "gpu_memset")]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut off at 60 %": lambda whole: whole[: len(whole) * 6 // 10],
    "an argument is NaN": _first(b'"args": {', b'"args": {"load": NaN, '),
    "an argument is -nan": _first(b'"args": {', b'"args": {"load": -nan, '),
    "an argument is inf": _first(b'"args": {', b'"args": {"load": inf, '),
    "a line break in a name": _first(b'"name": "', b'"name": "a\nb'),
    "a quote in a name": _first(b'"name": "', b'"name": "a"b'),
    "bad UTF-8 in a name": _first(b'"name": "', b'"name": "\xff\xfe'),
    "a comma after the last event": lambda whole: whole[: whole.rindex(b"]")] + b"," + whole[whole.rindex(b"]") :],
    "a byte order mark": lambda whole: b"\xef\xbb\xbf" + whole,
    "a bare list of events": lambda whole: json.dumps(json.loads(whole)["traceEvents"]).encode(),
    "two documents": lambda whole: whole + b"\n" + whole,
    "gzip": gzip.compress,
    "gzip, cut off": lambda whole: gzip.compress(whole)[: len(gzip.compress(whole)) * 6 // 10],
    "gzip, named .json": gzip.compress,
    "no events": _events(list.clear),
    "no steps": _events(_steps),
    "no device events": _events(_device),
    "times as text": _events(_texts),
    "an empty file": lambda _: b"",
    "not JSON": lambda _: b"Killed\n",
}
PARTS = {"speed": speed, "runs": runs, "numbers": numbers, "broken": broken}


def main(arguments: Sequence[str]) -> None:
    """Measure the requested parts, and save them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--traces", type=Path, required=True, help="folder with the public traces")
    parser.add_argument("--python", action="append", default=[], metavar="PROGRAM=PATH", help="its interpreter")
    parser.add_argument("--megabytes", type=float, default=190)
    given = parser.parse_args(arguments)
    pythons = dict(pair.split("=", 1) for pair in given.python)
    slow = tuple(program for program in ANALYSERS if program != "perftool")
    options = Options((), (given.megabytes,), 2, LIMIT, tuple(CONTENDERS), slow, 1000, 1000, pythons)
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    for name in given.parts or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            places = Places(given.traces.resolve(), options, Path(folder))
            kept[name] = {"method": method(options), "found": PARTS[name](places, given.megabytes)}
        KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def method(options: Options) -> dict[str, str]:
    """Return the date, the machine and the program versions."""
    machine = f"{processor()}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    return {"day": datetime.date.today().isoformat(), "machine": machine, "versions": versions(options)}


if __name__ == "__main__":
    main(sys.argv[1:])
