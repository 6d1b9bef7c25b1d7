"""All readers of user data. Whatever the bytes, they may raise only PerfToolError."""

from __future__ import annotations

import atexit
import gzip
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

import orjson
import zstandard
from builders import traps
from builders.fallback_logs import per_call, table_f1, table_f2, table_f3, table_f4
from builders.metrics_files import Snapshot, json_file, text_file
from builders.runtime_logs import banner, eviction, hugging_face_start, step_marker
from cost import bounded
from events import document, instant, launch, loader, step, x
from mutate import mutated
from reading import load, read_path
from scanning import read_csv
from shapes import shaped

from perftool.engine.analysis import analyze
from perftool.engine.compare.saved_report import read_saved
from perftool.engine.gate.baseline import read_baseline
from perftool.engine.rule_tests.check_pack import check_pack
from perftool.engine.rules.pack import builtin_folder, load_pack
from perftool.engine.settings.settings import adjust, load_settings
from perftool.errors import PerfToolError
from perftool.readers import text_input
from perftool.readers.config import run_config
from perftool.readers.discover import find_inputs
from perftool.readers.logs import console_log, environment_dump
from perftool.readers.metrics import compilation_stats, metrics_file
from perftool.readers.trace.splice import splice
from perftool.reporters.json import render_json
from perftool.store.readings import Reading, reading_tables, with_rows_limited
from perftool.store.trace_store import TraceStore

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Target:
    """Something to fuzz. ``run`` gets an input and an empty folder; ``seeds`` are good inputs to start from.

    ``make`` creates inputs from scratch. Without it, inputs are damaged seeds.
    """

    name: str
    seeds: Sequence[bytes]
    run: Callable[[bytes, Path], None]
    make: Callable[[Random], bytes] | None = None

    def input(self, number: int) -> bytes:
        """Return the input with this number, which is always the same."""
        random = Random(number)
        return self.make(random) if self.make else mutated(random, self.seeds)


def attempt(target: Target, data: bytes, memory: bool = True) -> None:
    """Run ``target`` on ``data``. Catch only PerfToolError, and raise AssertionError if the run costs too much."""
    with (
        tempfile.TemporaryDirectory(prefix="perftool-fuzz-") as folder,
        bounded(len(data), memory),
        suppress(PerfToolError),
    ):
        target.run(data, Path(folder))


EVENTS = [
    {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}},
    step(1, 0, 1000), loader(10, 200), x("aten::mm", 220, 90, Input_Dims=[[4, 4], [4, 4]]),
    *launch(1, 250, 5, 300, 400),
    instant("[memory]", 260, **{"Device Type": 1, "Device Id": 0, "Total Allocated": 9, "Total Reserved": 10}),
    step(2, 1000, 1000), x("aten::item", 1100, 300), *launch(2, 1500, 5, 1520, 300, "nccl_all_reduce"),
    {"ph": "s", "id": 1, "pid": 1, "tid": 1, "ts": 250, "cat": "ac2g", "name": "ac2g"},
    {"ph": "B", "name": "b", "pid": 1, "tid": 2, "ts": 5}, {"ph": "E", "pid": 1, "tid": 2, "ts": 9},
]  # fmt: skip
TRACES = [
    document(EVENTS, schemaVersion=1, deviceProperties=[{"id": 0, "name": "A100"}], distributedInfo={"rank": 3}),
    orjson.dumps(EVENTS),
    orjson.dumps({"traceEvents": EVENTS, "baseTimeNanoseconds": 5, "list": [{"id": 1}]}, option=orjson.OPT_INDENT_2),
    document([{**event, "ts": 1683564901548726.125 + event["ts"]} for event in EVENTS if "ts" in event]),
    *(trap()[0] for trap in (traps.cpu_fallback, traps.late_recipe_name, traps.unbalanced_edges,
                             traps.unescaped_strings, traps.graph_replay, traps.text_identifiers)),
]  # fmt: skip
COMPRESSED = [
    *(gzip.compress(data, mtime=0) for data in TRACES[:3]), gzip.compress(TRACES[0]) * 2,
    *(zstandard.ZstdCompressor().compress(data) for data in TRACES[:3]),
]  # fmt: skip
COUNTS = {"aten::nonzero": 48, "aten::index.Tensor_out": 12}
SNAPSHOTS = [
    Snapshot("process_exit", "2024-01-01 10:00:00", recipes=[("g_1", 5), ("g_2", 7)], fallbacks={"aten::nonzero": 3})
]
LOGS = [
    *(table(COUNTS).encode() for table in (table_f1, table_f2, table_f3, table_f4)),
    ((per_call("digamma", self="HPUBFloat16Type") + "\n") * 3).encode(),
    banner().encode(), eviction(7, 100).encode(), step_marker("x").encode(), hugging_face_start(9, 1, 2, 3, 4).encode(),
    table_f1(COUNTS).encode("utf-16"), (ROOT / "sample_traces/gaudi2_unoptimised/console.log").read_bytes(),
]  # fmt: skip
METRICS = [
    json_file(SNAPSHOTS).encode(), json_file(SNAPSHOTS, closed=False).encode(), text_file(SNAPSHOTS).encode(),
    b'[{"000000001": {"shapes": {"a": [1, 2]}, "compilations": [{"recipe": 1, "time": 5}]}}]',
]  # fmt: skip
CONFIGS = [
    b'{"train_batch_size": 8, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}',
    b'{"use_fused_adam": true, "autocast_bf16_ops": ["add"]}',
    b"PT_HPU_LAZY_MODE=1\nRANK=3\nPATH=/usr/bin\n",
]
CSV_HEAD = (
    b"Name,Trace Source,Engine,Event type,Timestamp[usec],recipeHandle,streamHandle,Recipe ID,Recipe name,"
    b"Context ID,Device,Operation,Data Type,HW Event port,HW Event description,SPMU value,BMON min,BMON avg,"
    b"BMON max,BMON matches,BMON configured cycles,NIC Packets amount,Misc\n"
)
CSV_ROW = b"conv,HW,[HD0] TPC 5,%b,%d,0x55,0xd9,61055,debug.g_1,0,accel0,conv_fwd_f32,float32,1,,,,,,,,,\n"
CSVS = [
    CSV_HEAD + CSV_ROW % (b"BEGIN", 1) + CSV_ROW % (b"END", 4),
    (CSV_HEAD + CSV_ROW % (b"BEGIN", 1) + CSV_ROW % (b"END", 4)).decode().encode("utf-16"),
]
BASELINES = [
    orjson.dumps({"version": 1, "tool": {"name": "habana_perf_tool", "version": "0"}, "findings": [
        {"fingerprint": "a", "code": "GAP101", "file": "t", "subject": "s", "message": "m", "count": 1}]}),
]  # fmt: skip
SETTINGS = [
    b'select = ["GAP"]\nignore = ["GAP104"]\nfail-on = "error"\nexclude = ["*"]\n[rules.GAP101]\nseverity = "error"\n',
    b'[tool.habana_perf_tool]\nextend-select = ["SYN"]\npreview = true\n[tool.habana_perf_tool.budgets]\n'
    b'step_time_ms = "<= 120"\n',
    b'extend = ""\noutput-format = "json"\n[per-file-ignores]\n"a*" = ["GAP101"]\n[rules.SYN101]\nmin_per_step = 2.0\n',
]
RULE = next(rule for rule in sorted(builtin_folder().rglob("SYN101.toml"))).read_bytes()
RULES = [
    RULE.replace(b'code = "SYN101"', b'code = "ACM901"').replace(b'benchmark = "scalar_reads"\n', b""),
    b"""code = "ACM901"\nname = "slow"\nsummary = "s"\nseverity = "info"\nconfidence = "low"\nstatus = "stable"
since = "0.1"\ndevices = "any"\nneeds = ["ops"]\n[params.least]\nvalue = 1\nunit = "n"\nwhy = "w"
[find]\nsql = "SELECT name AS subject, count(*) AS n, ts, dur FROM ops GROUP BY ALL HAVING count(*) >= $least"
[text]\nmessage = "{subject} {n}"\nwhy = "w"\nfix = "f"\n""",
]
CASES = [(ROOT / "tests/rules/SYN101.toml").read_bytes()]
QUERIES = [
    b"SELECT name, sum(dur) / 1e6 AS ms FROM device_ops GROUP BY 1 ORDER BY 2 DESC",
    b"WITH a AS (SELECT * FROM gaps) SELECT count(*), max(a.dur) FROM a LEFT JOIN steps USING (rank)",
    b"SELECT args -> '$.x' FROM raw WHERE name LIKE '%mm' -- comment",
]
TEXT_READERS = (
    compilation_stats.read, console_log.read, environment_dump.read, metrics_file.read, read_csv,
    run_config.read, text_input.read,
)  # fmt: skip


def _trace(data: bytes, folder: Path) -> None:
    path = folder / "trace.json"
    path.write_bytes(data)
    read_path(str(path))


def _copy(data: bytes, folder: Path) -> None:
    """Check that an annotated copy of a trace is read like the original."""
    path, again, spool = folder / "trace.json", folder / "copy.json", folder / "spool"
    path.write_bytes(data)
    spool.mkdir()
    before = read_path(str(path))
    ours = b'{"cat":"habana_perf_tool","ph":"M","name":"n"}'
    with open(again, "wb") as file:
        file.writelines(splice(load(str(path))[0], [ours], spool))
    assert b"habana_perf_tool" in again.read_bytes()
    after = read_path(str(again))
    # If a number stands where text belongs, the two loaders write it differently, so only times are compared.
    assert after.times == before.times
    # If the metadata contains a whole trace, so does the copy, and the reader reports it again.
    assert after.status == "ok" or again.read_bytes().count(b'"traceEvents"') > 1


def _analysis(data: bytes, folder: Path) -> None:
    path = folder / "trace.json"
    path.write_bytes(data)
    report = analyze([str(path)], load_rules())
    assert not [finding.message for finding in report.findings if finding.code == "TRC001"]
    render_json(report)


@cache
def load_rules() -> list:
    return load_pack(builtin_folder())


def _text(data: bytes, folder: Path) -> None:
    path = folder / "input.txt"
    path.write_bytes(data)
    reading = text_input.read(path)
    reading_tables(with_rows_limited([Reading(str(path), len(data), reading)]))
    for read in TEXT_READERS:
        with suppress(PerfToolError):
            read(data)


def _csv(data: bytes, folder: Path) -> None:
    path = folder / "profile.csv"
    path.write_bytes(data)
    with suppress(PerfToolError):
        read_csv(data)
    with TraceStore() as store:
        store.add_trace(str(path))
        store.build(["summary"])


def _discovery(data: bytes, folder: Path) -> None:
    for name in ("a.json", "b.log", "metrics.json", "c.csv", "d.json.gz", "ds_config.json"):
        (folder / name).write_bytes(data)
    for path in sorted(folder.iterdir()):
        with suppress(PerfToolError):
            find_inputs([str(path)])
    find_inputs([str(folder)])


def _baseline(data: bytes, folder: Path) -> None:
    path = folder / "baseline.json"
    path.write_bytes(data)
    read_baseline(path)


def _saved(data: bytes, folder: Path) -> None:
    path = folder / "report.json"
    path.write_bytes(data)
    read_saved(str(path))


@cache
def saved_reports() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_bytes(TRACES[0])
        return [render_json(analyze([str(path)]))]


def _settings(data: bytes, folder: Path) -> None:
    for name in ("habana_perf_tool.toml", "pyproject.toml"):
        path = folder / name
        path.write_bytes(data)
        with suppress(PerfToolError):
            adjust(load_rules(), load_settings([str(folder)], [], False, {}).overrides)
        path.unlink()
    with suppress(PerfToolError):
        load_settings([], [data.decode("utf-8", "replace")], True, {})


def _rule(data: bytes, folder: Path) -> None:
    (folder / "ACM901.toml").write_bytes(data)
    check_pack(folder)


def _cases(data: bytes, folder: Path) -> None:
    (folder / "ACM901.toml").write_bytes(RULES[0])
    (folder / "cases").mkdir()
    (folder / "cases" / "ACM901.toml").write_bytes(data)
    check_pack(folder)


@cache
def _open_store() -> TraceStore:
    """Return a single store for all queries."""
    store = TraceStore()
    # DuckDB complains about connections that are still open when Python exits.
    atexit.register(_open_store.cache_clear)
    atexit.register(store.close)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_bytes(TRACES[0])
        store.add_trace(str(path))
    return store


def _query(data: bytes, folder: Path) -> None:
    _open_store().query(data.decode("utf-8", "replace"), time_limit_s=2)


TARGETS = {
    target.name: target
    for target in (
        Target("trace", TRACES, _trace),
        Target("compressed", COMPRESSED, _trace),
        Target("copy", TRACES, _copy),
        Target("analysis", TRACES, _analysis),
        Target("shapes", [TRACES[0]], _analysis, shaped),
        Target("text", [*LOGS, *METRICS, *CONFIGS, *CSVS], _text),
        Target("csv", CSVS[:1], _csv),
        Target("discovery", [*LOGS, *METRICS, *CONFIGS, *CSVS, *TRACES, *COMPRESSED], _discovery),
        Target("baseline", BASELINES, _baseline),
        Target("report", saved_reports(), _saved),
        Target("settings", SETTINGS, _settings),
        Target("rule", RULES, _rule),
        Target("cases", CASES, _cases),
        Target("query", QUERIES, _query),
    )
}
