"""The paths on the command line determine which files are read."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from time import process_time

import pytest
import zstandard

from perftool.errors import InputError
from perftool.readers.discover import find_inputs
from perftool.readers.files import companions


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("b.json", "a.json.gz", "sub/c.json.zst", "sub/[x].json"):
        path = tmp_path / "traces" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (["traces/b.json"], ["traces/b.json"]),
        (["traces/b.json", "traces/a.json.gz"], ["traces/b.json", "traces/a.json.gz"]),
        (["traces/b.json", "traces/b.json"], ["traces/b.json"]),
        (["traces/sub"], ["traces/sub/[x].json", "traces/sub/c.json.zst"]),
        (["traces/sub/[x].json"], ["traces/sub/[x].json"]),
        (["traces/*.json"], ["traces/b.json"]),
        (["traces/**/*.zst"], ["traces/sub/c.json.zst"]),
        (["-"], ["-"]),
    ],
)
def test_paths_expand_to_the_expected_files(folder: Path, paths: list[str], found: list[str]) -> None:
    assert list(find_inputs(paths).traces) == found


def test_a_file_named_like_the_pattern_hides_no_other_file(folder: Path) -> None:
    (folder / "traces" / "*.json").write_bytes((folder / "traces" / "b.json").read_bytes())

    assert sorted(find_inputs(["traces/*.json"]).traces) == ["traces/*.json", "traces/b.json"]


def test_compressed_json_of_other_programs_is_no_trace(tmp_path: Path) -> None:
    """PyTorch's `export_memory_timeline` saves lists of times and sizes."""
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 10, "dur": 5, "pid": 1, "tid": 1}
    trace, timeline = tmp_path / "trace.json", tmp_path / "rank0.raw.json.gz"
    trace.write_text(json.dumps({"traceEvents": [event]}), encoding="utf-8")
    whole = gzip.compress(json.dumps([[1, 2, [3, 0], 4]]).encode())
    timeline.write_bytes(whole)
    assert find_inputs([str(tmp_path)]).traces == (str(trace),)
    # A file that was cut off may be a trace.
    timeline.write_bytes(whole[:-8])
    with pytest.raises(InputError, match="belong to 2 runs"):
        find_inputs([str(tmp_path)])


def test_a_run_is_picked_in_a_folder_beside_a_log(tmp_path: Path) -> None:
    for folder, start in (("night1", 1), ("night2", 2)):
        event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": start * 1e15, "dur": 5, "pid": start, "tid": 1}
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "trace.json").write_text(json.dumps({"traceEvents": [event]}), encoding="utf-8")
    log = tmp_path / "console.log"
    log.write_text("CPU fallback digamma : self=HPUBFloat16Type\n", encoding="utf-8")
    found = find_inputs([str(tmp_path), str(log)], run="night1")
    assert found.traces == (str(tmp_path / "night1" / "trace.json"),)


def test_excluded_files_are_left_out(folder: Path) -> None:
    assert find_inputs(["traces/*"], exclude=["*.gz"]).traces == ("traces/b.json",)


@pytest.mark.parametrize(
    ("paths", "exclude", "sentence"),
    [
        (["none.json"], [], "none.json: no such file"),
        (["none*.json"], [], "none*.json: the pattern matches no file"),
        (["empty"], [], "empty: the folder contains no "),
        (["traces/b.json"], ["*"], "no input is left after --exclude"),
        (["-", "-"], [], "'-' can be used only once"),
    ],
)
def test_paths_without_a_match_are_refused(folder: Path, paths: list[str], exclude: list[str], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        find_inputs(paths, exclude=exclude)
    assert str(caught.value).startswith(sentence)


def test_logs_and_metrics_beside_a_trace_are_found(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('[{"ph": "X"}]')
    (tmp_path / "console.log").write_text("Frequency of op and op name that were executed on CPU:\n3\taten::digamma\n")
    (tmp_path / "metrics-rank0.json.1").write_text('[{"metric_name": "cpu_fallback", "statistics": {}}]')
    (tmp_path / "notes.md").write_text("nothing")

    found = find_inputs([str(tmp_path / "run.json")])

    assert [Path(path).name for path in found.traces] == ["run.json"]
    assert sorted(Path(path).name for path in found.texts) == ["console.log", "metrics-rank0.json.1"]


def test_logs_that_are_named_replace_those_beside_the_trace(tmp_path: Path) -> None:
    for name in ("run.json", "console.log", "other.txt"):
        (tmp_path / name).write_text('[{"ph": "X"}]')

    found = find_inputs([str(tmp_path / "run.json")], [str(tmp_path / "other.txt")])

    assert [Path(path).name for path in found.texts] == ["other.txt"]


def test_our_own_documents_in_a_folder_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"traceEvents": [{"ph": "X"}]}')
    (tmp_path / "report.json").write_text('{"device": {}, "tool": {"name": "habana_perf_tool", "version": "1"}}')

    assert [Path(path).name for path in find_inputs([str(tmp_path)]).traces] == ["run.json"]


def test_a_trace_that_names_this_program_is_a_trace(tmp_path: Path) -> None:
    far = "a" * 5000
    text = f'{{"x": "{far}", "traceEvents": [{{"ph": "X"}}], "y": "{far}", "habana_perf_tool": 1}}'
    (tmp_path / "run.json").write_text('{"traceEvents": [{"ph": "X"}]}')
    (tmp_path / "hidden.json").write_text(text)
    (tmp_path / "damaged.json").write_text(text[:-1])

    found = find_inputs([str(tmp_path)], as_one_run=True).traces
    assert [Path(path).name for path in found] == ["damaged.json", "hidden.json", "run.json"]


def test_names_that_are_not_files_are_left_out_of_a_folder(folder: Path) -> None:
    (folder / "traces" / "gone.json").symlink_to(folder / "nothing")
    (folder / "traces" / "nested.json").mkdir()
    assert find_inputs(["traces"]).traces == (
        "traces/a.json.gz", "traces/b.json", "traces/sub/[x].json", "traces/sub/c.json.zst",
    )  # fmt: skip


def test_entries_of_a_folder_that_are_not_files_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"traceEvents": []}')
    (tmp_path / "folder.json").mkdir()
    # A system file such as /dev/zero may report a size of 0 and never end.
    (tmp_path / "empty").touch()
    for name, target in {"a.json": "empty", "a.env": "empty", "b.json": "/dev/zero", "c.json": "c.json"}.items():
        os.symlink(target, tmp_path / name)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.json")
        os.mkfifo(tmp_path / "pipe.log")
    assert find_inputs([str(tmp_path)]).files == (str(tmp_path / "run.json"),)
    assert find_inputs([str(tmp_path / "run.json")]).files == (str(tmp_path / "run.json"),)


EVENT = '{"ph": "X", "ts": 1, "dur": 1, "name": "a"}'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bad.json", f'{{"trace\\u0045v\\u0065nts": [{EVENT}]}}'),
        ("bad.json", " " * (9 << 20) + f'{{"traceEvents": [{EVENT}]}}'),
        ("bad.json", f'\ufeff{{"x": "{"a" * (1 << 20)}", "traceEvents": [{EVENT}]}}'),
        ("bad.json", f"[0, {EVENT}]"),
        ("bad.json", f"[[{EVENT}]]"),
        ("bad.json", f'[{{"traceEvents": [{EVENT}]}}]'),
        ("bad.json", f'{{"tool": "habana_perf_tool", "profile": {{"traceEvents": [{EVENT}]}}}}'),
        ("bad.json", f'{{"tool": "habana_perf_tool", "a": {{"traceEvents": [{EVENT}]}}, "a": 1}}'),
        ("bad.json", f'{{"events": [{EVENT}]}}'),
        ("bad.json", json.dumps({"traceEvents": f"[{EVENT}]"})),
        ("bad.json", json.dumps([EVENT, EVENT])),
        ("bad.json", json.dumps(json.dumps(f"[{EVENT}]"))),
        ("bad.json", json.dumps(f'{{"traceEvents": [{EVENT}]}}').replace('\\"', "\\u0022")),
        ("bad.json", '[{"n": "a", "ts": 1, "dur": 1}]'),
        ("bad.json", '{"tool": "habana_perf_tool", "x": "' + EVENT.replace('"', '\\"') + '"}'),
        ("bad.JSON", f'{{"traceEvents": [{EVENT}]}}'),
        ("host_1.17.pt.trace.json", f'{{"trace\\u0045vents": [{EVENT}]}}'),
    ],
    ids=[
        "key",
        "blanks",
        "mark",
        "array",
        "nested",
        "object in array",
        "own",
        "repeated",
        "other key",
        "string",
        "strings",
        "string twice",
        "quotes",
        "no phase",
        "own string",
        "suffix",
        "recording",
    ],
)
@pytest.mark.parametrize("beside", ["good.json", "host_0.1780000000000000000.pt.trace.json"])
def test_a_trace_in_a_folder_is_read_however_it_is_written(beside: str, name: str, text: str, tmp_path: Path) -> None:
    """Otherwise, a gate would pass even though some traces were not read."""
    (tmp_path / beside).write_text(f'{{"traceEvents": [{EVENT}]}}')
    (tmp_path / name).write_text(text)
    (tmp_path / "state.json").write_text('{"epoch": 3}')
    found = find_inputs([str(tmp_path)], as_one_run=True)
    assert sorted(Path(path).name for path in found.traces) == sorted([name, beside])
    assert found.notes == ()


def test_a_damaged_trace_beside_a_recording_is_an_input(tmp_path: Path) -> None:
    (tmp_path / "host_0.1780000000000000000.pt.trace.json").write_text(f'{{"traceEvents": [{EVENT}]}}')
    (tmp_path / "rank1.json").write_text(f'ents": [{EVENT}]}}')
    found = find_inputs([str(tmp_path)])
    assert (len(found.traces), found.notes) == (2, ())


def test_a_note_names_what_is_not_read_in_a_folder(tmp_path: Path) -> None:
    runs, other = tmp_path / "runs", tmp_path / "other"
    for folder in (runs, other, runs / "newest"):
        folder.mkdir()
    (runs / "host_0.1780000000000000000.pt.trace.json").write_text(f'{{"traceEvents": [{EVENT}]}}')
    (runs / "same").symlink_to("newest")
    (runs / "more").symlink_to(other)
    (runs / "gone.json").symlink_to("nothing")
    (runs / "log.json").write_text('{"epoch": 3}\n{"epoch": 4}')
    (note,) = find_inputs([str(runs)]).notes
    assert note == (
        f"{runs}/more is a link to another folder and was not read (name that folder, too); "
        f"{runs}/gone.json is a broken link, and was not read; "
        f"{runs}/log.json does not look like a trace and was not read (name it to read it anyway)"
    )
    for number in range(3):
        (runs / f"gone{number}.json").symlink_to("nothing")
    assert find_inputs([str(runs)]).notes[0].endswith("3 more were not read for similar reasons")


def test_a_note_names_broken_links_that_may_lead_to_a_rank(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text(f'{{"traceEvents": [{EVENT}]}}')
    # Editors mark an open file by the last one.
    links = ["rank1", "accel1.csv", ".#rank0.json"]
    for name in links:
        (tmp_path / name).symlink_to("nothing")
    found = find_inputs([str(tmp_path)])
    assert all(found.notes[0].count(f"{tmp_path}/{name} is a broken link, and was not read") == 1 for name in links)
    assert not found.doubts


@pytest.mark.parametrize(
    "name",
    ["rank1.json.xz", "rank1.JSON.BZ2", "rank1.json.zstd", "rank1.json.Z", "rank1.json.1", "rank1.trace.gz",
     "rank1.json (1)", "rank1.json~", "rank1.pt.trace", "rank1.gz"],
)  # fmt: skip
@pytest.mark.parametrize(
    "content",
    [b"\xfd7zXZ\0packed", f'{{"traceEvents": [{EVENT}]}}'.encode(), b'[{"ts": 1, "dur": 1}]', b"\x1f\x8bcut", b""],
    ids=["packed", "a trace", "no phase", "damaged", "empty"],
)
def test_a_note_names_a_trace_that_is_compressed_in_another_way(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text(f'{{"traceEvents": [{EVENT}]}}')
    (tmp_path / name).write_bytes(content)
    for other in ("metrics.json.1", "rank1.json.part", "run.trace.csv"):
        (tmp_path / other).write_bytes(b"other")
    found = find_inputs([str(tmp_path)], exclude=["*.part"])
    assert [Path(trace).name for trace in found.traces] == ["rank0.json"]
    assert found.notes == (
        f"{tmp_path}/{name} was not read: the names of traces end with .json, .json.gz or .json.zst",
    )
    (doubt,) = found.doubts
    assert doubt.file == str(tmp_path / name)
    excluded = find_inputs([str(tmp_path)], exclude=["*.part", str(tmp_path / name)])
    assert (excluded.notes, excluded.doubts) == ((), ())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rank0.json.sha256", b"0123abcd  rank0.json\n"),
        ("config.json.bak", b'{"epochs": 3}'),
        (".rank0.json.swp", b"\0\0"),
    ],
)
def test_a_file_with_a_similar_name_is_no_trace_if_it_is_a_text_without_events(
    name: str, content: bytes, tmp_path: Path
) -> None:
    (tmp_path / "rank0.json").write_text(f'{{"traceEvents": [{EVENT}]}}')
    (tmp_path / name).write_bytes(content)
    found = find_inputs([str(tmp_path)])
    assert found.notes == (
        f"{tmp_path}/{name} was not read: the names of traces end with .json, .json.gz or .json.zst",
    )
    assert not found.doubts


def packed(path: Path, members: Iterable[str]) -> None:
    """An archive of ``members``, packed as the name says."""
    members = [*members, "README.md"]
    if path.suffix.lower() == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for member in members:
                archive.writestr(member, b"{}")
        return
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for member in members:
            tar.addfile(tarfile.TarInfo(member))
    pack = {".tgz": gzip.compress, ".gz": gzip.compress, ".zst": zstandard.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(content.getvalue()))


LONG = "a/" * 60
SOURCES = ["package.json", "tests/data/config.json", "stacktrace.json", "src/trace.py", "src/rank1.py", LONG + "x.json"]


@pytest.mark.parametrize("name", ["src.zip", "SRC.ZIP", "src.tar", "src.tgz", "src.tar.gz", "src.tar.zst"])
@pytest.mark.parametrize(
    ("member", "doubted"),
    [("", False), ("run/vm_1.1764500000000.pt.trace.json.gz", True), ("rank1.json", True), ("rank_1/t.json", True),
     ("trace.json", True), (LONG + "rank1.json", True)],
)  # fmt: skip
def test_a_note_names_an_archive_which_may_be_a_rank_if_it_contains_a_trace(
    name: str, member: str, doubted: bool, tmp_path: Path
) -> None:
    (tmp_path / "rank0.json").write_text(f'{{"traceEvents": [{EVENT}]}}')
    packed(tmp_path / name, [*SOURCES, *filter(None, [member])])
    found = find_inputs([str(tmp_path)])
    assert found.notes == (f"{tmp_path}/{name} was not read: archives have to be unpacked",)
    assert [doubt.file for doubt in found.doubts] == [f"{tmp_path}/{name}"] * doubted
    excluded = find_inputs([str(tmp_path)], exclude=[f"*/{name}"])
    assert (excluded.notes, excluded.doubts) == ((), ())


@pytest.mark.parametrize(
    "content", [b"", b"PK\3\4", b"\x1f\x8bcut", b"7z\xbc\xaf'\x1c", b"\0" * 124 + b"-7" + b" " * 10]
)
@pytest.mark.parametrize(
    ("name", "doubted"),
    [("rank1.zip", True), ("rank1.tgz", True), ("m_Rank.1.7z", True), ("rank1.tar", True), ("rank1.xz", True),
     ("src.zip", False), ("src.7z", False), ("src.tar", False), ("src.tgz", False)],
)  # fmt: skip
def test_an_archive_whose_name_has_a_rank_may_be_a_trace_whatever_it_contains(
    name: str, doubted: bool, content: bytes, tmp_path: Path
) -> None:
    (tmp_path / "rank0.json").write_text(f'{{"traceEvents": [{EVENT}]}}')
    (tmp_path / name).write_bytes(content)
    found = find_inputs([str(tmp_path)])
    assert [note.startswith(f"{tmp_path}/{name} was not read: ") for note in found.notes] == [True]
    assert [doubt.file for doubt in found.doubts] == [f"{tmp_path}/{name}"] * doubted


def test_an_archive_is_searched_to_its_end_and_if_it_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text(f'{{"traceEvents": [{EVENT}]}}')
    with zipfile.ZipFile(tmp_path / "first.zip", "w") as archive:
        archive.writestr("rank1.json", b"{}")
        archive.writestr("weights.bin", bytes(3 << 20))
    (tmp_path / "cut.zip").write_bytes((tmp_path / "first.zip").read_bytes()[:9999])
    with zipfile.ZipFile(tmp_path / "last.zip", "w") as archive:
        archive.writestr("weights.bin", bytes(3 << 20))
        archive.writestr("rank1.json", b"{}")
    found = find_inputs([str(tmp_path)])
    assert [Path(doubt.file).name for doubt in found.doubts] == ["cut.zip", "first.zip", "last.zip"]


def test_files_that_macos_adds_are_not_read(tmp_path: Path) -> None:
    """A gate once called such a file another recording."""
    names = ["vm_1.1764500000000.pt.trace.json", "rank1.part", "console.log", "metrics_before.txt"]
    (tmp_path / names[0]).write_text(f'{{"traceEvents": [{EVENT}]}}')
    for name in names:
        (tmp_path / f"._{name}").write_bytes(b"\0\5\x16\7\0\2\0\0Mac OS X        ")
    found = find_inputs([str(tmp_path)])
    assert found.files == (f"{tmp_path}/{names[0]}",)
    assert found.notes == (
        f"{tmp_path}/._console.log and 3 more files were not read: only macOS uses such files, for attributes of other "
        "files",
    )
    assert not found.omitted


@pytest.mark.parametrize("name", ["rank1.part", "rank1.PART"])
def test_parts_in_a_folder_with_traces_are_not_read_and_a_note_says_so(name: str, tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text(f'{{"traceEvents": [{EVENT}]}}')
    part = tmp_path / name
    part.write_bytes(b"part")
    found = find_inputs([str(tmp_path)])
    assert (found.parts, found.unread_parts) == ((), (str(part),))
    assert found.notes == (f"{part} was not read: its folder contains traces; name the files to read",)
    named = find_inputs([str(tmp_path), str(part)])
    assert (named.parts, named.unread_parts, named.notes) == ((str(part),), (), ())
    excluded = find_inputs([str(tmp_path)], exclude=[f"*{part.suffix}"])
    assert (excluded.unread_parts, excluded.notes) == ((), ())


FALLBACKS = "Frequency of op and op name that were executed on CPU:\n3\taten::digamma\n"


@pytest.mark.parametrize(
    ("log", "trace", "metadata", "found"),
    [
        ("scaler.log", "scaler.json", "", True),
        ("scaler_rank0.log", "scaler.json", '"distributedInfo": {"rank": 0}, ', True),
        ("console.log", "resnet.json", "", True),
        ("scaler.log", "rank0.json", "", True),
        ("scaler.log", "resnet.json", "", False),
        ("console-rank1.log", "resnet.json", '"distributedInfo": {"rank": 0}, ', False),
        ("console.log", "resnet.json", '"deviceProperties": [{"name": "NVIDIA A100"}], ', False),
        ("console.log", "resnet.json", '"deviceProperties": [{"name": "GAUDI2"}], ', True),
    ],
)
def test_a_log_beside_a_trace_is_read_if_it_may_belong_to_the_same_run(
    log: str, trace: str, metadata: str, found: bool, tmp_path: Path
) -> None:
    (tmp_path / trace).write_text(f'{{{metadata}"traceEvents": [{{"ph": "X", "ts": 1, "dur": 1, "name": "a"}}]}}')
    (tmp_path / log).write_text(FALLBACKS)

    inputs = find_inputs([str(tmp_path / trace)])

    assert [Path(path).name for path in inputs.texts] == [log] * found
    assert [note for note in inputs.notes if "is left out" in note] == list(inputs.notes)
    assert len(inputs.notes) == (not found)


@pytest.mark.parametrize(
    ("name", "text", "other", "given", "is_doubted"),
    [
        ("scaler.log", FALLBACKS, None, ".", True),
        ("scaler.log", FALLBACKS, None, "resnet.json", True),
        ("scaler.log", FALLBACKS, "scaler.json", "resnet.json", False),
        # A data set shows no other run.
        ("scaler.log", FALLBACKS, "scaler_data.json", "resnet.json", True),
        ("sglang_metrics.txt", "cut", None, ".", True),
        ("nvidia-smi.log", "a text", None, ".", False),
    ],
)
def test_a_gate_needs_a_file_of_another_run_unless_a_trace_of_this_run_is_there(
    name: str, text: str, other: str | None, given: str, is_doubted: bool, tmp_path: Path
) -> None:
    event = '"traceEvents": [{"ph": "X", "ts": 1, "dur": 1, "name": "a"}]'
    own = tmp_path / "resnet.json"
    own.write_text(f"{{{event}}}")
    file = tmp_path / name
    file.write_text(text)
    if other:
        (tmp_path / other).write_text("[]" if "data" in other else f"{{{event}}}")

    inputs = find_inputs([str(tmp_path / given)])

    assert str(file) not in inputs.texts
    assert [doubt.file for doubt in inputs.doubts] == [str(file)] * is_doubted
    assert find_inputs([str(own)], exclude=[f"*{name}"]).doubts == ()
    assert find_inputs([str(own), str(file)]).doubts == ()


@pytest.mark.parametrize(
    ("ranks", "size", "given", "is_doubted"),
    [([0], 2, ".", True), ([0], 2, "rank0.json", False), ([0], 1, ".", False), ([0, 1], 2, "rank0.json", False)],
    ids=["without a trace", "the user chose a rank", "complete run", "with a trace"],
)
def test_a_gate_needs_the_log_of_a_rank_without_a_trace(
    ranks: list[int], size: int, given: str, is_doubted: bool, tmp_path: Path
) -> None:
    for rank in ranks:
        info = f'"distributedInfo": {{"rank": {rank}, "world_size": {size}}}'
        text = f'{{{info}, "traceEvents": [{{"ph": "X", "ts": 1, "dur": 1, "name": "a"}}]}}'
        (tmp_path / f"rank{rank}.json").write_text(text)
    log = tmp_path / "console_rank1.log"
    log.write_text(FALLBACKS)
    found = find_inputs([str(tmp_path / given)])
    assert [doubt.file for doubt in found.doubts] == [str(log)] * is_doubted
    assert found.texts == ()


@pytest.mark.parametrize("name", ["nccl_trace_rank_1", "comm_lib_trace_rank_1"])
def test_a_dump_with_a_name_of_pytorch_belongs_to_any_run(name: str, tmp_path: Path) -> None:
    (tmp_path / "llama_rank0.json").write_text('{"traceEvents": [{"ph": "X", "ts": 1, "dur": 1, "name": "a"}]}')
    (tmp_path / name).write_text('{"version": "2.5", "entries": []}')
    assert find_inputs([str(tmp_path)]).texts == (str(tmp_path / name),)


def test_the_log_of_another_trace_in_the_folder_is_not_read(tmp_path: Path) -> None:
    for name in ("trace.json", "scaler.json"):
        (tmp_path / name).write_text('{"traceEvents": [{"ph": "X", "ts": 1, "dur": 1, "name": "a"}]}')
    (tmp_path / "scaler.log").write_text(FALLBACKS)

    assert find_inputs([str(tmp_path / "trace.json")]).texts == ()
    assert len(find_inputs([str(tmp_path / "scaler.json")]).texts) == 1


def test_finding_the_logs_of_a_folder_takes_linear_time(tmp_path: Path) -> None:
    """Comparing each of 1,500 logs with 1,500 other files took minutes."""
    (tmp_path / "run.json").write_text('{"traceEvents":[{"ph":"X","name":"a","ts":1,"dur":1}]}')
    for number in range(250):
        word = "".join(chr(ord("a") + (number // 26**place) % 26) for place in range(3))
        (tmp_path / f"q{word}.log").write_text("[INFO] CPU fallback aten::x\n")
        (tmp_path / f"w{word}.json").write_text("{}")
    logs = [(str(file), "runtime_log") for file in tmp_path.glob("*.log")]
    begun = process_time()
    assert len(companions.files_of_other_runs(logs, [str(tmp_path / "run.json")], bool)) == 0
    assert process_time() - begun < 1


def test_the_words_of_all_traces_are_joined_once(tmp_path: Path) -> None:
    """Joining them for each log took minutes."""
    words = "_".join("q" + first + second for first in "abcdefg" for second in "abcdefgh")
    traces = [str(tmp_path / f"{words}_{number}.json") for number in range(5_000)]
    logs = [(str(tmp_path / f"{words}_{number}.log"), "runtime_log") for number in range(5_000)]
    assert companions.files_of_other_runs(logs, traces, bool) == []
