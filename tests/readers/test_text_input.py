"""Text inputs are classified, and each is read by its own reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from perftool.errors import InputError
from perftool.model.records import FallbackRecord
from perftool.readers import text_input
from perftool.readers.sniff import sniff

HEADER = "Name,Trace Source,Engine,Event type,Timestamp[usec],recipeHandle"


@pytest.mark.parametrize(
    ("text", "name", "kind", "form"),
    [
        ('[{"metric_name": "graph_compilation"', "", "metrics", "metrics"),
        ('[\n  {\n    "metric_name": "x"', "", "metrics", "metrics"),
        ("\nMetric name: cpu_fallback\n", "", "metrics", "metrics"),
        (HEADER, "", "csv", "profiler_csv"),
        ('{"zero_optimization": {}}', "", "config", "json_config"),
        ('{\n  "use_fused_adam": true\n}', "", "config", "json_config"),
        ('{"anything": 1}', "run/my_config.json", "config", "json_config"),
        ('{"anything": 1}', "run/other.json", "unknown", "unknown"),
        ('{"schemaVersion": 1, "bf16": 1, "traceEvents": []}', "", "unknown", "unknown"),
        ('[{"ph": "X", "name": "a"}]', "", "unknown", "unknown"),
        ("PATH=/usr/bin\nPT_HPU_LAZY_MODE=1\n", "", "config", "environment"),
        ("FOO=1\n", "deploy/.env", "config", "environment"),
        ("FOO=1\n", "run.txt", "unknown", "unknown"),
        ("loss=0.3\nstarted the run\nsecond line of text\n", "", "unknown", "unknown"),
        ("text\nCPU Fallback stats:\n1\taten::x\n", "", "fallback_log", "log"),
        ("[20:57:12.104233][PT_LAZY ][debug][tid:1] anything\n", "", "runtime_log", "log"),
        ("=== HABANA PT BRIDGE CONFIGURATION ===\n PT_HPU_LAZY_MODE = 1\n", "", "runtime_log", "log"),
        ("  Instantaneous batch size per device = 8\n", "", "runtime_log", "log"),
        ("just text\n", "", "unknown", "unknown"),
        ("", "", "unknown", "unknown"),
    ],
)
def test_sniff(text: str, name: str, kind: str, form: str) -> None:
    sniffed = sniff(text.split("\n"), name)
    assert (sniffed.kind, sniffed.form) == (kind, form)


CONSOLE = """\
=============== HABANA PT BRIDGE CONFIGURATION ===============
 PT_HPU_LAZY_MODE = 1
--------------------------------------------------------------
step marker due to local scalar
HabanaOp recipe cache :: adding new recipe to cache :: 5
CPU Fallback stats:
2\taten::digamma
"""


def test_one_console_log_holds_everything() -> None:
    reading = text_input.read(CONSOLE.encode())
    assert reading.kind == "runtime_log"
    assert [(entry.key, entry.value) for entry in reading.config] == [("PT_HPU_LAZY_MODE", "1")]
    assert [(event.kind, event.name) for event in reading.events] == [("graph_cut", "local scalar")]
    assert [record.recipe for record in reading.compilations] == ["5"]
    assert reading.fallbacks == (FallbackRecord("aten::digamma", "aten::digamma", 2, "table", table=0, line=6),)
    assert reading.issues == ()
    assert reading.records == 4


def test_log_of_nothing_but_fallbacks() -> None:
    assert text_input.read(b"CPU Fallback stats:\n2\taten::digamma\n").kind == "fallback_log"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ('[{"metric_name": "m", "statistics": {"TotalNumber": 1}}]\n', "metrics"),
        ('{"bf16": {"enabled": true}}\n', "config"),
        ("PT_HPU_LAZY_MODE=1\n", "config"),
        (CONSOLE, "runtime_log"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_every_kind_from_a_file(content: str, kind: str, encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "run-rank2.txt"
    path.write_bytes(content.encode(encoding))
    reading = text_input.read(path)
    assert reading.kind == kind
    assert reading.records > 0
    # A DeepSpeed file applies to all ranks.
    assert reading.ranks == (() if content.startswith("{") else (2,))
    assert text_input.sniff_input(path).kind in {kind, "fallback_log"}


def test_problems_before_and_after_the_look_are_kept() -> None:
    reading = text_input.read("caf\xe9\nCPU Fallback stats:\n2\taten::digamma".encode("latin-1"))
    assert {issue.kind: issue.count for issue in reading.issues} == {"not UTF-8": 1, "cut line": 1}


def test_a_profiler_csv_is_not_a_log() -> None:
    with pytest.raises(InputError, match=r"^input: a profiler CSV, which is a trace, not a log$"):
        text_input.read(f"{HEADER}\n".encode())


@pytest.mark.parametrize(
    "text", ['{"traceEvents": [{"ph": "X"}]}', '[\n {"name": "a", "ph": "X", "ts": 1}\n]', '{"schemaVersion": 1']
)
def test_a_trace_is_not_a_log(text: str) -> None:
    with pytest.raises(InputError, match=r"^input: a trace, not a log$"):
        text_input.read(text.encode())


def test_a_folder_gives_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r": a folder, not a file$"):
        text_input.read(tmp_path)
