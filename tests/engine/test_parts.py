"""Ranks that are analysed separately as parts and then merged yield the same report as all traces together."""

from __future__ import annotations

import io
import json
import os
import tracemalloc
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from culprits import one_rank, write_run

from perftool.commands.merge import merge
from perftool.commands.options import CliSettings
from perftool.engine.analysis import analysed, analyze
from perftool.engine.ranks.part import Part
from perftool.engine.ranks.part_file import digests, read_part, render_part, together
from perftool.engine.rules.pack import builtin_folder, load_pack
from perftool.errors import InputError, PerfToolError
from perftool.model.inputs import ImportIssue, InputFile
from perftool.model.rule import Rule
from perftool.readers.discover import find_inputs
from perftool.reporters.json import render_json
from perftool.store.catalog import catalog
from perftool.store.rank_export import corrupt_as_input_error

RULES = [rule for rule in load_pack(builtin_folder()) if rule.code.startswith(("COL", "GAP10", "TRC", "CFG10"))]


def part_of(*paths: str, rules: Sequence[Rule] = RULES) -> bytes:
    with analysed(find_inputs(list(paths)), rules) as run:
        return render_part(run.part)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The parts of a run of three ranks, one part per trace. There is a configuration file next to two of the
    traces."""
    here = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("run"))
    write_run(Path(), 3, one_rank("loader", 1), per_host=2, skew=200_000.0, steps=2)
    Path("node000/gaudi_config.json").write_text('{"use_fused_adam": false, "autocast_bf16_ops": null}')
    for rank in range(3):
        Path(f"p{rank}.part").write_bytes(part_of(f"node00{rank // 2}/rank{rank}.json"))
    yield ["p0.part", "p1.part", "p2.part"]
    os.chdir(here)


def test_merging_gives_the_report_of_the_folder_in_any_order_and_grouping(run: list[str]) -> None:
    traces = render_json(analyze(["node000", "node001"], RULES))

    assert b"its device waits 40.1 ms for the data loader" in traces
    assert render_json(analyze(run[::-1], RULES)) == traces
    Path("some.part").write_bytes(part_of(*run[1:]))
    # A rank counts once even if two parts contain it.
    Path("all.part").write_bytes(part_of("some.part", *run[:2]))
    assert Path("all.part").read_bytes() == part_of(*run)
    assert render_json(analyze(["all.part"], RULES)) == traces


@pytest.mark.parametrize("with_origin", [(), (0,), (0, 1)], ids=["absolute", "mixed", "relative"])
def test_parts_of_different_recordings_are_refused(tmp_path: Path, with_origin: tuple[int, ...]) -> None:
    """A rank that was killed today may have left a part yesterday. Older traces have no origin but absolute times."""
    parts = []
    for rank, hours in ((0, 25), (1, 0)):
        start = 1_760_000_000_000_000_000 + hours * 3_600_000_000_000
        origin = {"baseTimeNanoseconds": start} if rank in with_origin else {}
        ts = 10 if origin else start // 1000 + 10
        events = [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": ts, "dur": 5, "pid": 1, "tid": 1}]
        info = {"rank": rank, "world_size": 2}
        trace = tmp_path / f"rank{rank}.json"
        trace.write_text(json.dumps({"traceEvents": events, "distributedInfo": info, **origin}), encoding="utf-8")
        parts.append(str(tmp_path / f"rank{rank}.part"))
        Path(parts[-1]).write_bytes(part_of(str(trace), rules=()))
    with pytest.raises(InputError, match=r"different recordings: rank 0 was recorded 90000 s after rank 1"):
        analyze(parts, ())
    with pytest.raises(InputError, match="--run picks a recording among traces"):
        find_inputs(parts, run="newest")


def test_a_part_is_small_and_describes_itself(run: list[str]) -> None:
    with zipfile.ZipFile(run[1]) as archive:
        head = json.loads(archive.read("part.json"))
    assert (head["format"], head["version"], head["ranks"]) == ("habana_perf_tool part", 1, [1])
    assert Path(run[1]).stat().st_size < 22_000
    # Each rank lists the members of all groups. If every part kept them, the parts would grow with the square of the
    # number of ranks.
    assert head["parts"][0]["facts"]["metadata"]["1"]["distributedInfo"] == {"rank": 1, "world_size": 3, "pg_count": 2}


def test_tables_over_ranks_can_be_queried_but_single_events_cannot(run: list[str]) -> None:
    with analysed(find_inputs(run), RULES) as joined:
        assert joined.query("SELECT rank, host FROM ranks")[1] == [(0, "node000"), (1, "node000"), (2, "node001")]
        with pytest.raises(InputError, match="pass the traces instead"):
            joined.query("SELECT * FROM slices")


def changed(part: str, tables: dict[str, bytes] | None = None, **head: Any) -> bytes:
    """Return a copy of ``part`` with other entries in its head and other ``tables``."""
    with zipfile.ZipFile(part) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    entries["part.json"] = json.dumps({**json.loads(entries["part.json"]), **head}).encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, (tables or {}).get(Path(name).stem, content))
    return file.getvalue()


def with_facts(part: str, **facts: Any) -> bytes:
    """Return a copy of ``part`` with other facts about its only rank."""
    with zipfile.ZipFile(part) as archive:
        (only,) = json.loads(archive.read("part.json"))["parts"]
    return changed(part, parts=[{**only, "facts": {**only["facts"], **facts}}])


def answers(part: str, **row: Any) -> list[Any]:
    """Return the answers of rules in ``part``, but with ``row`` as the only row for the first rule."""
    with zipfile.ZipFile(part) as archive:
        (only,) = json.loads(archive.read("part.json"))["parts"]
    first, *others = only["facts"]["answers"]
    return [{**first, "rows": [row]}, *others]


@pytest.mark.parametrize(
    ("head", "says"),
    [
        ({"version": 2}, "the part has version 2; this program reads version 1"),
        ({"version": None}, r"not a part, or corrupt \(ValueError: it does not state its versions\)"),
        ({"tool": None}, r"not a part, or corrupt \(ValueError: it does not state its versions\)"),
        ({"tool": "9.9"}, "exported by habana_perf_tool 9.9, whose tables differ"),
        ({"format": "something"}, "not a part written by habana_perf_tool"),
        ({"parts": [{"inputs": 7}]}, r"not a part, or corrupt \(TypeError: "),
        ({"parts": [{"surprise": 7}]}, r"not a part, or corrupt \(ValueError: unknown field surprise"),
        ({"rules": {}}, r"exported with different rules or thresholds \(CFG10\d and \d+ more\)"),
    ],
)
def test_another_part_is_refused_in_a_sentence(run: list[str], head: dict[str, Any], says: str) -> None:
    Path("other.part").write_bytes(changed(run[0], **head))
    with pytest.raises(InputError, match=f"^other.part: {says}"):
        analyze(["other.part"], RULES)


def test_a_rule_with_another_key_that_changes_its_rows_is_another_rule() -> None:
    rule = next(rule for rule in RULES if rule.scope == "rank" and rule.sql)
    changes: list[dict[str, Any]] = [
        {"relieves": "device" if rule.relieves == "host" else "host"}, {"explains": ("python", *rule.explains)},
        {"needs_names": ("none", *rule.needs_names)}, {"only_if": "SELECT 1"}, {"tags": ("recorder", *rule.tags)},
    ]  # fmt: skip
    assert all(digests([replace(rule, **change)]) != digests([rule]) for change in changes)
    assert digests([replace(rule, message="Other words")]) == digests([rule])


def test_a_damaged_part_is_refused_in_a_sentence(run: list[str]) -> None:
    whole = Path(run[0]).read_bytes()
    for damaged in (b"", b"PK\x03\x04", whole[: len(whole) // 2], changed(run[0], {"steps": b"PAR1PAR1"})):
        Path("bad.part").write_bytes(damaged)
        with pytest.raises(InputError, match=r"export (it|the part) again"):
            analyze(["bad.part"], RULES)


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"metadata": {"-5": {}}}, "it contains the impossible rank -5"),
        ({"metadata": {"1000000": {}}}, "it contains the impossible rank 1000000"),
        ({"metadata": {}}, "it contains tables without a rank"),
        ({"base_ns": 10**18 * 5}, "its times are relative to an impossible start, 5000"),
        ({"answers": []}, "it has no result for CFG10"),
        ({"row": {"rank": 0}}, "the query must return a subject in every row"),
        ({"row": {"subject": "x", "rank": 7}}, "refers to rank 7, which the part does not contain"),
        ({"row": {"subject": "x", "ts": "soon"}}, "the column ts must contain whole numbers, not 'soon'"),
        ({"row": {"subject": "x", "n": {"$decimal": "1E+999999999"}}}, r"1E\+999999999 is not a number from a query"),
        ({"row": {"subject": "x", "predicted_ns": "much"}}, "predicted_ns is 'much'"),
        ({"row": {"subject": "x", "sources": [{"file": 7}]}}, "int in the wrong place"),
    ],
)
def test_a_part_made_by_hand_is_refused_in_words(run: list[str], facts: dict[str, Any], says: str) -> None:
    wrong = {"answers": answers(run[0], **facts["row"])} if "row" in facts else facts
    Path("hand.part").write_bytes(with_facts(run[0], **wrong))
    with pytest.raises(InputError, match=f"hand.part: not a part, or corrupt .*{says}"):
        read_part("hand.part")


@pytest.mark.parametrize(
    ("table", "columns", "says"),
    [
        ("windows", "* REPLACE (7 AS rank)", "a row for a rank of another part"),
        ("windows", "* EXCLUDE (dur)", '"dur"'),
        ("steps", "* REPLACE ('long' AS dur)", "Could not convert string 'long'"),
        ("tracks", "t.* FROM tracks AS t, range(9)", "has too many rows"),
    ],
)
def test_tables_made_by_hand_are_refused_in_words(
    run: list[str], table: str, columns: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(run[0]) as archive:
        Path("old.parquet").write_bytes(archive.read(f"tables/0/{table}.parquet"))
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE {table} AS FROM 'old.parquet'")
        query = columns if "FROM" in columns else f"{columns} FROM {table}"
        connection.execute(f"COPY (SELECT {query}) TO 'new.parquet'")
    monkeypatch.setattr("perftool.store.rank_export.MOST_ROWS", 20)
    Path("hand.part").write_bytes(changed(run[0], {table: Path("new.parquet").read_bytes()}))
    with pytest.raises(InputError, match=f"the tables of a part are corrupt; export the part again .*{says}"):
        analyze(["hand.part"], [])


def test_a_part_that_would_unpack_to_too_much_is_refused(run: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perftool.engine.ranks.part_check.LARGEST_PART", 1000)
    with pytest.raises(InputError, match=r"it unpacks to more than"):
        read_part(run[0])


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT t.* FROM tracks AS t, range(300_000)", "tracks has too many rows"),
        (
            "SELECT t.* REPLACE (repeat('x', 100_000) AS engine) FROM tracks AS t, range(200)",
            "tracks repeats its texts",
        ),
    ],
    ids=["rows", "texts"],
)
def test_repeated_content_is_bounded_by_the_size_of_the_part(run: list[str], query: str, says: str) -> None:
    with zipfile.ZipFile(run[0]) as archive:
        Path("old.parquet").write_bytes(archive.read("tables/0/tracks.parquet"))
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE tracks AS FROM 'old.parquet' LIMIT 1")
        connection.execute(f"COPY ({query}) TO 'new.parquet' (COMPRESSION zstd)")
    assert Path("new.parquet").stat().st_size < 64 << 10
    Path("hand.part").write_bytes(changed(run[0], {"tracks": Path("new.parquet").read_bytes()}))
    with pytest.raises(InputError, match=f"the tables of a part are corrupt; export the part again .*{says}"):
        analyze(["hand.part"], [])


def test_texts_in_lists_are_bounded_by_the_size_of_the_part(run: list[str]) -> None:
    """DuckDB trusts the uncompressed size that the file states."""
    columns = [f"NULL::{one.type} AS {one.name}" for one in catalog()["recipes"].columns if one.name != "kernel_names"]
    names = "list(repeat('x', 10_000)) AS kernel_names FROM range(1000)"
    table = Path("new.parquet")
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT {', '.join(columns)}, {names}) TO 'new.parquet' (COMPRESSION zstd)")
        sizes = "SELECT max(total_uncompressed_size) FROM parquet_metadata('new.parquet')"
        ((size,),) = connection.execute(sizes).fetchall()
    table.write_bytes(table.read_bytes().replace(zigzag(size), zigzag(1 << 21)))
    Path("hand.part").write_bytes(changed(run[0], {"recipes": table.read_bytes()}))
    with pytest.raises(InputError, match=r"the tables of a part are corrupt; .*recipes repeats its texts too often"):
        analyze(["hand.part"], [])


def test_tables_that_need_too_much_memory_are_not_called_damage() -> None:
    """Lists with 400 MB of text, for example."""
    says = r"^the tables of the parts need too much memory; merge fewer parts \(Out of memory: more, please\)$"
    with pytest.raises(InputError, match=says), corrupt_as_input_error():
        raise duckdb.OutOfMemoryException("Out of memory: more, please")


def zigzag(number: int) -> bytes:
    """Return ``number`` as Parquet's Thrift encodes it."""
    left, written = 2 * number, b""
    while left > 127:
        left, written = left >> 7, written + bytes([left & 127 | 128])
    return written + bytes([left])


def repacked(part: str, method: int = zipfile.ZIP_DEFLATED, **more: bytes) -> bytearray:
    """Return a copy of ``part`` with every member compressed by ``method``, and with ``more`` members."""
    with zipfile.ZipFile(part) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()} | more
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return bytearray(file.getvalue())


@pytest.mark.parametrize("harm", ["bzip2", "lzma", "encrypted", "patched", "future", "unknown method", "damaged"])
def test_members_that_we_never_wrote_are_refused_in_a_sentence(run: list[str], harm: str) -> None:
    method = {"bzip2": zipfile.ZIP_BZIP2, "lzma": zipfile.ZIP_LZMA}.get(harm, zipfile.ZIP_DEFLATED)
    data = repacked(run[0], method)
    directory = data.index(b"PK\x01\x02")
    if harm == "encrypted":
        data[6] |= 1
        data[directory + 8] |= 1
    if harm == "patched":
        data[directory + 8] |= 0x20
    if harm == "future":
        data[directory + 6] = 100
    if harm == "unknown method":
        data[8] = data[directory + 10] = 99
    if harm == "damaged":
        data[60:90] = bytes(255 - byte for byte in data[60:90])
    Path("odd.part").write_bytes(data)
    with pytest.raises(InputError, match=r"odd\.part: not a part, or corrupt"):
        read_part("odd.part")


def test_a_member_is_unpacked_only_to_its_stated_size(run: list[str]) -> None:
    head = bytes(50 << 20)
    data = repacked(run[0], **{"part.json": head})
    for at in (22, data.index(b"PK\x01\x02") + 24):
        assert data[at : at + 4] == len(head).to_bytes(4, "little")
        data[at : at + 4] = (1000).to_bytes(4, "little")
    Path("lie.part").write_bytes(data)
    tracemalloc.start()
    with pytest.raises(InputError, match="Bad CRC-32"):
        read_part("lie.part")
    assert tracemalloc.get_traced_memory()[1] < 10 << 20
    tracemalloc.stop()


def test_empty_values_of_a_head_are_bounded_by_the_size_of_the_part(run: list[str]) -> None:
    Path("many.part").write_bytes(changed(run[0], readings=[[]] * 300_000))
    data = repacked("many.part")
    Path("many.part").write_bytes(data)
    with pytest.raises(InputError, match="it contains more values than its size allows"):
        read_part("many.part")


def test_bytes_outside_of_a_part_are_damage(run: list[str]) -> None:
    """The bytes before or after a part may be the part of a slow rank, which no gate would see."""
    one, other = (Path(path).read_bytes() for path in run[:2])
    for data in (one + other, one + b"x"):
        Path("joined.part").write_bytes(data)
        with pytest.raises(InputError, match=r"other bytes (precede|follow) it"):
            read_part("joined.part")


def test_half_a_surrogate_pair_in_a_part_is_text(run: list[str]) -> None:
    with zipfile.ZipFile(run[0]) as archive:
        text = json.dumps(json.loads(archive.read("part.json"))["parts"])
    for name, shown in ((r"\ud800", r"\ud800"), (r"\udce4", r"\xe4")):
        Path("half.part").write_bytes(
            changed(run[0], parts=json.loads(text.replace("rank0.json", f"rank0{name}.json")))
        )
        found = analyze(["half.part"], RULES)
        assert {read.path for read in found.inputs if read.kind == "trace"} == {f"node000/rank0{shown}.json"}
        assert render_json(found)


def test_an_input_that_is_unreadable_without_a_reason_is_refused(run: list[str]) -> None:
    lost = {"path": "x", "kind": "trace", "rank": 0, "bytes": 0, "events": 0, "status": "unreadable", "issues": []}
    with zipfile.ZipFile(run[0]) as archive:
        (only,) = json.loads(archive.read("part.json"))["parts"]
    for head in ({"failed": [lost]}, {"parts": [{**only, "unreadable": [lost]}]}):
        Path("mute.part").write_bytes(changed(run[0], **head))
        with pytest.raises(InputError, match="it does not say why an input is unreadable"):
            read_part("mute.part")


def test_a_damaged_text_in_a_table_is_refused_in_a_sentence(run: list[str]) -> None:
    with zipfile.ZipFile(run[0]) as archive:
        table = archive.read("tables/0/tracks.parquet")
    # Damage a column name, which DuckDB then repeats when its error message lists the existing columns.
    at = table.index(b"\x18\x06engine") + 2
    Path("hand.part").write_bytes(changed(run[0], {"tracks": table[:at] + b"\xff" + table[at + 1 :]}))
    with pytest.raises(InputError, match="the tables of a part are corrupt; export the part again"):
        analyze(["hand.part"], [])


def test_two_parts_of_one_rank_are_not_one_run(run: list[str]) -> None:
    Path("again").mkdir()
    write_run(Path("again"), 3, one_rank("compute", 1), per_host=2, steps=2)
    Path("again.part").write_bytes(part_of("again/node000/rank0.json"))
    with pytest.raises(InputError, match=r"again.part and p0.part both contain rank 0; leave one out"):
        analyze([run[0], "again.part"], RULES)


class _Counted(dict[int, Any]):
    """Metadata of ranks that counts how often all of it is read."""

    reads = 0

    def values(self) -> Any:
        type(self).reads += 1
        return super().values()


def test_the_ranks_of_a_part_are_compared_with_others_once(run: list[str]) -> None:
    Path("both.part").write_bytes(part_of("node000/rank0.json", "node000/rank1.json"))
    made = read_part("both.part")
    (part,) = made.parts
    assert part.facts is not None
    counted = replace(part, facts=replace(part.facts, metadata=_Counted(part.facts.metadata)))
    together([("both.part", replace(made, parts=(counted,)))])
    assert _Counted.reads == 1


def test_a_part_and_a_trace_of_one_rank_are_not_one_run(run: list[str]) -> None:
    """The steps of both would be counted together, so the part could hide a slow trace."""
    for given in ([run[0], "node000/rank0.json"], ["node001/rank2.json", "node000/rank0.json", run[0]]):
        with pytest.raises(InputError, match=r"^node000/rank0.json and p0.part both contain rank 0; leave one out"):
            analyze(given, RULES)


def test_traces_and_parts_of_different_ranks_are_one_run(run: list[str]) -> None:
    with analysed(find_inputs([run[0], "node000/rank1.json", run[2]]), RULES) as mixed:
        assert mixed.query("SELECT rank FROM ranks ORDER BY rank")[1] == [(0,), (1,), (2,)]
        assert [read.path for read in mixed.store.inputs if read.kind == "trace"] == [
            "node000/rank0.json", "node000/rank1.json", "node001/rank2.json",
        ]  # fmt: skip


def test_a_part_without_its_inputs_is_refused(run: list[str]) -> None:
    with zipfile.ZipFile(run[0]) as archive:
        (part,) = json.loads(archive.read("part.json"))["parts"]
    of_another_rank = [{**read, "rank": 7} for read in part["inputs"]]
    for head, says in (
        ({"parts": [], "readings": []}, "it contains no input"),
        ({"parts": [{**part, "inputs": []}]}, "it contains no analysed input"),
        ({"parts": [{**part, "inputs": of_another_rank}]}, "it does not say which input belongs to rank 0"),
    ):
        Path("blank.part").write_bytes(changed(run[0], **head))
        with pytest.raises(InputError, match=f"blank.part: not a part, or corrupt .*{says}"):
            analyze(["blank.part", "node001/rank2.json"], RULES)


def test_files_at_the_same_path_on_different_hosts_are_all_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = {}
    for name in "ab":
        Path("console.log").write_text(f"Frequency of op and op name that were executed on CPU:\n3\taten::{name}\n")
        Path(f"{name}.part").write_bytes(part_of("console.log"))
        reason = (ImportIssue("unreadable", 1, name),)
        trace, log = (InputFile(f"a.{kind}", kind, None, 0, 0, "unreadable", reason) for kind in ("trace", "log"))
        read = read_part(f"{name}.part")
        made[name] = replace(read, parts=(Part((), (trace,), None),), failed=(log,))
    for names in ("ab", "ba", "aba"):
        both = together([(name, made[name]) for name in names])
        assert [call.op for one in both.readings for call in one.reading.fallbacks] == ["aten::a", "aten::b"]
        assert [one.issues[0].message for one in both.failed] == ["a", "b"]
        assert [part.unreadable[0].issues[0].message for part in both.parts] == [*dict.fromkeys(names)]
    lost = analyze(["a.part", "b.part"], RULES)
    assert [read.path for read in lost.inputs] == ["console.log"] * 2


def test_a_part_of_texts_in_which_nothing_is_recognised_is_unrecognised(run: list[str]) -> None:
    Path("empty.log").write_text("nothing\n")
    Path("empty.part").write_bytes(part_of("empty.log"))
    with analysed(find_inputs([run[0], "empty.part"]), RULES) as joined:
        assert joined.unrecognised(joined.report) == ["empty.part"]


def test_merge_takes_parts_only(run: list[str]) -> None:
    with pytest.raises(PerfToolError, match=r"rank0.json: not a part; create one with analyze"):
        merge(CliSettings(), [run[0], "node000/rank0.json"])


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs a device without an end")
def test_a_device_is_not_read_for_ever() -> None:
    with pytest.raises(InputError, match="/dev/zero: not a regular file, so not a part"):
        read_part("/dev/zero")
