"""Archives from Gaudi's native profiler, both healthy and hostile."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import time
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from stores import findings_of

from perftool.engine.analysis import analysed, analyze
from perftool.engine.rules.pack import shipped_rules
from perftool.errors import InputError
from perftool.readers.discover import find_inputs
from perftool.readers.nodes import bundle, is_bundle
from perftool.store.readings import read_text

GRAPH = json.dumps({
    "graphs": [{
        "name": "g", "recipe_debug_id": 7, "tensors": [],
        "nodes": [{"name": "relu", "guid": "relu_fwd_bf16", "id": 1, "engine": "TPC", "is_logical": False}],
    }]
}).encode()  # fmt: skip
VIEW = json.dumps({
    "analyzer_metadata": [
        {"Unit": "MME", "Node Name": "mm", "Op Type": "GEMM", "Duration (usec)": 12.5, "Active (usec)": 10}
    ]
}).encode()  # fmt: skip
HOST = json.dumps({
    "traceEvents": [
        {"ph": "X", "cat": "SYNAPSE", "name": "synchronizeStream", "pid": 3, "tid": 4, "ts": 10, "dur": 5, "args": {}}
    ]
}).encode()  # fmt: skip
MEMBERS = {
    "views/trace_analyzer.json": VIEW,
    "prof-data/bin/model_hw_prof_accel0_1.bin": b"\0" * 1000,
    "prof-data/config/prof_config.json": b"{}",
    "prof-data/host/host_trace.json": HOST,
    "prof-data/post-graph/g_0.json": GRAPH,
    "prof-data/profile_state.json": b"{}",
}
RAW_ONLY = {"prof-data/bin/a.bin": b"\0" * 1000}
Make = Callable[[Path, Mapping[str, bytes]], None]


def as_zip(path: Path, members: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def as_tar(path: Path, members: Mapping[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


BOTH = pytest.mark.parametrize("make", [as_zip, as_tar])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "default_profiling_77.hltv"


@BOTH
def test_the_members_of_an_archive(make: Make, path: Path) -> None:
    make(path, MEMBERS)
    reading = read_text(str(path))
    assert is_bundle(str(path))
    assert [node.node for node in reading.reading.nodes] == ["mm"]
    assert [node.node for node in reading.reading.graph_nodes] == ["relu"]
    # A single message covers the raw traces that only synprof_parser can read, and the file does not count as repaired.
    assert [issue.message for issue in reading.reading.issues] == [
        "raw hardware traces, which synprof_parser --csv turns into CSV: 1"
    ]
    assert reading.as_input().status == "ok"


@BOTH
def test_the_host_trace_of_an_archive_is_used_if_there_is_no_other(make: Make, path: Path) -> None:
    make(path, MEMBERS)
    assert find_inputs([str(path)]).traces == (str(path),)
    inputs = {(read.kind, read.events, read.status) for read in analyze([str(path)], []).inputs}
    assert inputs == {("trace", 1, "ok"), ("nodes", 2, "ok")}


def test_an_archive_with_only_a_host_trace_was_recognised(path: Path) -> None:
    as_zip(path, {name: content for name, content in MEMBERS.items() if content == HOST})
    with analysed(find_inputs([str(path)]), []) as run:
        assert run.unrecognised(run.report) == []
        assert len([read for read in run.report.inputs if not read.events]) == 1


@BOTH
def test_next_to_a_trace_an_archive_only_gives_nodes(make: Make, path: Path) -> None:
    make(path, MEMBERS)
    other = path.parent / "worker.1700000000000000000.pt.trace.json"
    other.write_bytes(HOST)
    found = find_inputs([str(path.parent)])
    assert (found.traces, found.texts) == ((str(other),), (str(path),))


@BOTH
def test_an_archive_without_usable_members_gives_one_sentence(make: Make, path: Path) -> None:
    make(path, RAW_ONLY)
    with pytest.raises(InputError, match=r"only a raw hardware trace, which synprof_parser --csv turns into CSV$"):
        bundle.read(str(path))
    make(path, {"notes.txt": b"hello"})
    with pytest.raises(InputError, match="no known content"):
        bundle.read(str(path))


def test_json_under_that_name_is_a_trace(path: Path) -> None:
    path.write_bytes(HOST)
    assert not is_bundle(str(path))
    assert analyze([str(path)], []).inputs[0].events == 1


OUTSIDE = (
    "../views/trace_analyzer.json", "/views/trace_analyzer.json", "prof-data/post-graph/../x.json",
    "prof-data/post-graph/a/../../../x.json", "views/../views/trace_analyzer.json",
)  # fmt: skip


@BOTH
@pytest.mark.parametrize("name", OUTSIDE)
def test_nothing_is_read_or_written_under_a_name_that_leaves_the_archive(make: Make, name: str, path: Path) -> None:
    make(path, {**RAW_ONLY, name: VIEW})
    before = sorted(path.parent.rglob("*"))
    with pytest.raises(InputError, match="only a raw"):
        bundle.read(str(path))
    assert sorted(path.parent.rglob("*")) == before


def test_links_are_left_alone(path: Path) -> None:
    secret = path.parent / "secret.json"
    secret.write_bytes(VIEW)
    link = zipfile.ZipInfo("views/trace_analyzer.json")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(link, str(secret))
    with pytest.raises(InputError, match=r"no known content; .*trace_analyzer.json is not a regular file"):
        bundle.read(str(path))
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
        info = tarfile.TarInfo("views/trace_analyzer.json")
        info.type, info.linkname = kind, str(secret)
        with tarfile.open(path, "w:gz") as tar:
            tar.addfile(info)
        with pytest.raises(InputError, match="no known content"):
            bundle.read(str(path))


def test_sparse_members_of_an_archive_are_ignored(path: Path) -> None:
    # 235 bytes that would expand to a terabyte.
    info = tarfile.TarInfo("prof-data/host/host_trace.json")
    info.pax_headers = {
        "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": info.name,
        "GNU.sparse.realsize": str(1 << 40),
    }  # fmt: skip
    content = b"1\n0\n1\n".ljust(512, b"\0") + b"x"
    info.size = len(content)
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(content))
    with pytest.raises(InputError, match="no host trace"):
        bundle.copy_host_trace(str(path), path.parent / "out.json")


def test_the_list_of_blocks_of_a_sparse_member_is_not_read(path: Path) -> None:
    info = tarfile.TarInfo("a")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "a"}
    content = b"1000000\n" + b"0\n" * 2_000_000
    info.size = len(content)
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(content))
        after = tarfile.TarInfo("views/trace_analyzer.json")
        after.size = len(VIEW)
        archive.addfile(after, io.BytesIO(VIEW))
    began = time.process_time()
    reading = bundle.read(str(path))
    assert time.process_time() - began < 1
    assert (len(reading.nodes), reading.issues) == (1, ())


def test_a_long_list_of_blocks_of_a_sparse_member_is_damage(path: Path) -> None:
    info = tarfile.TarInfo("a")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    # The list continues in the next block.
    header[482] = 1
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * ord(" ") + sum(header[156:]))
    path.write_bytes(gzip.compress(bytes(header)))
    with pytest.raises(InputError, match="damaged or truncated: a sparse file with more blocks"):
        bundle.read(str(path))
    assert not bundle.has_host_trace(str(path))


def test_many_damaged_members_are_counted_and_not_listed(path: Path) -> None:
    broken = {f"prof-data/post-graph/{number}.json": b"{" for number in range(200)}
    as_zip(path, {**broken, "views/trace_analyzer.json": VIEW})
    issues = bundle.read(str(path)).issues
    assert len(issues) == 11
    assert sum(issue.count for issue in issues) == 200
    as_zip(path, broken)
    with pytest.raises(InputError, match="and 190 more members are damaged") as raised:
        bundle.read(str(path))
    assert len(str(raised.value)) < 4000


def test_an_archive_inside_an_archive_is_not_opened(path: Path) -> None:
    as_zip(path, MEMBERS)
    nested = path.read_bytes()
    as_zip(path, {"inner.hltv": nested, "views/inner.zip": nested})
    with pytest.raises(InputError, match="no known content"):
        bundle.read(str(path))


@BOTH
@pytest.mark.parametrize(
    "name", ["views/trace_analyzer.json", "prof-data/post-graph/g.json", "prof-data/host/host_trace.json"]
)
def test_bombs_are_refused_before_they_are_large(make: Make, name: str, path: Path) -> None:
    make(path, {name: b" " * (40 << 20)})
    assert path.stat().st_size < 1 << 20
    with pytest.raises(InputError, match="archive bomb"):
        bundle.read(str(path)) if "host" not in name else bundle.copy_host_trace(str(path), path.parent / "out.json")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_formats_that_python_unpacks_without_a_limit_are_refused(method: int, path: Path) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("views/trace_analyzer.json", VIEW)
    with pytest.raises(InputError, match="uses a compression method that no profiler uses"):
        bundle.read(str(path))


def test_all_members_together_are_bounded_by_the_size_of_the_archive(path: Path) -> None:
    as_zip(path, {f"prof-data/post-graph/{number}.json": b" " * (12 << 20) for number in range(3)})
    with pytest.raises(InputError, match="archive bomb"):
        bundle.read(str(path))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_the_first_member_of_a_name_is_the_member(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for content in (VIEW, b"{", b"{"):
            archive.writestr("views/trace_analyzer.json", content)
    read = bundle.read(str(path))
    assert (len(read.nodes), read.issues) == (1, ())


@pytest.mark.parametrize("headers", [{f"k{key}": "" for key in range(17)}, {"mtime": "1" * 1001}])
@pytest.mark.parametrize("once", [True, False])
def test_global_headers_that_every_member_repeats_are_refused(headers: dict[str, str], once: bool, path: Path) -> None:
    parts = [headers] if once else [{key: value} for key, value in headers.items()]
    content = b"".join(tarfile.TarInfo.create_pax_global_header(part) for part in parts)
    path.write_bytes(gzip.compress(content + tarfile.TarInfo("views/trace_analyzer.json").tobuf() + bytes(1024)))
    with pytest.raises(InputError, match="more global headers than any profiler writes"):
        bundle.read(str(path))


@pytest.mark.parametrize(("length", "count"), [(30_000, 1), (10_000, 10), (1000, 2000)])
def test_extended_headers_that_python_searches_in_quadratic_time_are_refused(
    length: int, count: int, path: Path
) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, length
    content = bytes(length - 1) + b"1"
    member = header.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-length % tarfile.BLOCKSIZE)
    path.write_bytes(gzip.compress((member + tarfile.TarInfo("a").tobuf()) * count + bytes(1024)))
    with pytest.raises(InputError, match="longer headers than any profiler writes"):
        bundle.read(str(path))


def test_an_archive_may_have_a_global_header(path: Path) -> None:
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT, pax_headers={"comment": "0" * 40}) as archive:
        info = tarfile.TarInfo("views/trace_analyzer.json")
        info.size = len(VIEW)
        archive.addfile(info, io.BytesIO(VIEW))
    assert bundle.read(str(path)).nodes


def test_headers_of_headers_of_headers_are_damage(path: Path) -> None:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, tarfile.BLOCKSIZE
    path.write_bytes(gzip.compress((header.tobuf(tarfile.USTAR_FORMAT) + b"a" * tarfile.BLOCKSIZE) * 2000))
    with pytest.raises(InputError, match="the archive is damaged"):
        bundle.read(str(path))


def test_a_header_of_a_length_beyond_all_files_is_damage(path: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, tarfile.BLOCKSIZE
    said = b"99999999999999999999 path=a\n".ljust(tarfile.BLOCKSIZE, b"\0")
    path.write_bytes(gzip.compress(header.tobuf(tarfile.USTAR_FORMAT) + said + bytes(2 * tarfile.BLOCKSIZE)))
    with pytest.raises(InputError, match="the archive is damaged"):
        bundle.read(str(path))


def test_a_false_size_is_not_trusted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MOST_MEMBER_BYTES", 1 << 16)
    as_zip(path, {"views/trace_analyzer.json": b" " * (3 << 20)})
    data = bytearray(path.read_bytes())
    size = (3 << 20).to_bytes(4, "little")
    while (at := data.find(size)) >= 0:
        data[at : at + 4] = (100).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(InputError):
        bundle.read(str(path))


@BOTH
def test_more_members_than_a_profiler_writes(make: Make, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MOST_MEMBERS", 100)
    make(path, {f"prof-data/post-graph/x/{number}": b"" for number in range(100)})
    with pytest.raises(InputError, match="no known content"):
        bundle.read(str(path))
    make(path, {f"prof-data/post-graph/x/{number}": b"" for number in range(101)})
    with pytest.raises(InputError, match="more than 100 files, which no profiler writes"):
        bundle.read(str(path))


@BOTH
def test_a_cut_archive_gives_the_part_before_the_cut_or_one_sentence(make: Make, path: Path) -> None:
    make(path, MEMBERS)
    whole = path.read_bytes()
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        with suppress(InputError):
            assert bundle.read(str(path)).issues


def _tampered(packed: bytes) -> bytes:
    return packed.replace(b'"dur": 5,', b'"dur": 1,')


def _wrong_checksum(packed: bytes) -> bytes:
    return packed[:-6] + bytes([packed[-6] ^ 1]) + packed[-5:]


def _lost_end(packed: bytes) -> bytes:
    return packed[:-8]


def _followed(packed: bytes) -> bytes:
    return packed + b"x"


@pytest.mark.parametrize("damage", [_tampered, _wrong_checksum, _lost_end, _followed])
def test_the_compression_of_an_archive_is_checked_to_its_end(damage: Callable[[bytes], bytes], path: Path) -> None:
    as_tar(path, {"prof-data/host/host_trace.json": HOST})
    packed = gzip.compress(gzip.decompress(path.read_bytes()), 0)
    path.write_bytes(packed)
    assert bundle.read(str(path)).issues == ()
    path.write_bytes(damage(packed))
    assert [issue.kind for issue in bundle.read(str(path)).issues] == ["damaged archive"]


def test_a_damaged_archive_is_a_finding(path: Path) -> None:
    as_tar(path, {"prof-data/host/host_trace.json": HOST})
    path.write_bytes(_lost_end(path.read_bytes()))
    damaged = [rule for rule in shipped_rules() if rule.code == "TRC101"]
    assert [finding.code for finding in findings_of([str(path)], damaged)] == ["TRC101"]


def _second_archive(content: bytes) -> bytes:
    return content * 2


def _wrong_header(content: bytes) -> bytes:
    return content.replace(b"views/", b"Views/")


def _no_end_mark(content: bytes) -> bytes:
    return content.rstrip(b"\0").ljust(-(-len(content.rstrip(b"\0")) // 512) * 512, b"\0")


@pytest.mark.parametrize("damage", [_second_archive, _wrong_header, _no_end_mark])
def test_members_lost_after_an_early_end_of_the_archive_are_damage(
    damage: Callable[[bytes], bytes], path: Path
) -> None:
    as_tar(path, {"prof-data/host/host_trace.json": HOST, "views/trace_analyzer.json": VIEW})
    path.write_bytes(gzip.compress(damage(gzip.decompress(path.read_bytes()))))
    assert [issue.kind for issue in bundle.read(str(path)).issues] == ["damaged archive"]


def test_damage_in_one_member_leaves_the_others(path: Path) -> None:
    as_zip(path, {**MEMBERS, "views/trace_analyzer.json": b"{broken"})
    reading = bundle.read(str(path))
    assert [node.node for node in reading.graph_nodes] == ["relu"]
    assert [issue.kind for issue in reading.issues] == ["damaged member", "not read"]


_DIRECTORY, _END = b"PK\x01\x02", b"PK\x05\x06"


def test_no_changed_bit_of_a_directory_hides_a_member(path: Path) -> None:
    as_zip(path, {"prof-data/host/host_trace.json": HOST, "prof-data/post-graph/g_0.json": GRAPH})
    whole = path.read_bytes()
    assert (bundle.read(str(path)).issues, bundle.has_host_trace(str(path))) == ((), True)
    for place in range(whole.index(_DIRECTORY), len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            with suppress(InputError):
                read = bundle.read(str(path))
                assert read.issues or (len(read.graph_nodes) == 1 and bundle.has_host_trace(str(path))), (place, bit)


def _after_another(packed: bytes, other: bytes) -> bytes:
    return other + packed


def _before_another(packed: bytes, other: bytes) -> bytes:
    return packed + other


def _before_its_beginning(packed: bytes, other: bytes) -> bytes:
    return packed + other[:100]


def _with_another_as_comment(packed: bytes, other: bytes) -> bytes:
    return packed[:-2] + struct.pack("<H", len(other)) + other


def _around_another(packed: bytes, other: bytes) -> bytes:
    """Put ``other`` between the members of ``packed`` and their directory."""
    at = packed.index(_DIRECTORY)
    end = packed.index(_END)
    return packed[:at] + other + packed[at : end + 16] + struct.pack("<LH", at + len(other), 0)


@pytest.mark.parametrize(
    "joined",
    [_after_another, _before_another, _before_its_beginning, _with_another_as_comment, _around_another],
)
def test_bytes_outside_of_the_members_of_a_zip_are_damage(
    joined: Callable[[bytes, bytes], bytes], path: Path, tmp_path: Path
) -> None:
    as_zip(path, {"prof-data/host/host_trace.json": HOST, "views/trace_analyzer.json": VIEW})
    as_zip(tmp_path / "other", {"prof-data/host/host_trace.json": HOST.replace(b": 5", b": 9")})
    path.write_bytes(joined(path.read_bytes(), (tmp_path / "other").read_bytes()))
    read = bundle.read(str(path))
    assert [issue.kind for issue in read.issues] == ["damaged archive"]
    assert "other bytes" in read.issues[0].message


class _Pipe(io.BytesIO):
    def seekable(self) -> bool:
        return False


@pytest.mark.parametrize("file", [io.BytesIO, _Pipe])
@pytest.mark.parametrize("comment", [b"", b"made by a tool"])
def test_nothing_is_outside_of_an_archive_however_it_was_written(
    file: Callable[[], io.BytesIO], comment: bytes, path: Path
) -> None:
    written = file()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in MEMBERS.items():
            with archive.open(name, "w", force_zip64=name.startswith("views")) as member:
                member.write(content)
        archive.comment = comment
    path.write_bytes(written.getvalue())
    assert [issue.kind for issue in bundle.read(str(path)).issues] == ["not read"]


def test_a_member_listed_as_a_link_is_damage(path: Path) -> None:
    as_zip(path, {"prof-data/host/host_trace.json": HOST, "views/trace_analyzer.json": VIEW})
    whole = bytearray(path.read_bytes())
    at = whole.index(_DIRECTORY)
    whole[at + 40 : at + 42] = struct.pack("<H", 0o120777)
    path.write_bytes(whole)
    read = bundle.read(str(path))
    assert (len(read.nodes), [issue.kind for issue in read.issues]) == (1, ["damaged member"])


@pytest.mark.parametrize("start", [None, int.from_bytes(_END, "little")])
def test_a_huge_directory_is_refused_whatever_its_end_says(start: int | None, path: Path) -> None:
    entry = struct.pack("<4s6H3L5H2L", _DIRECTORY, 20, 20, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    first = b"PK\x03\x04" + bytes(26)
    directory = entry * 240_000
    stated = len(first) if start is None else start
    path.write_bytes(first + directory + struct.pack("<4s4H2LH", _END, 0, 0, 1, 1, len(directory), stated, 0))
    with pytest.raises(InputError, match="more files than the 20,000"):
        bundle.read(str(path))


def test_a_gzip_of_something_else(path: Path) -> None:
    path.write_bytes(gzip.compress(b"hello" * 1000))
    with pytest.raises(InputError, match="damaged or truncated"):
        bundle.read(str(path))


@pytest.mark.parametrize(
    "content", [b"", b"PK", b"PK\x03\x04", b"PK\x05\x06" + b"\xff" * 40, b"\x1f\x8b", b"\x00\x01HLTV"]
)
def test_other_bytes(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(InputError):
        analyze([str(path)], [])


@pytest.mark.parametrize("letter", ["h", "\u00e4"])
def test_an_archive_may_have_the_longest_name_that_a_file_can_have(letter: str, tmp_path: Path) -> None:
    path = tmp_path / f"{letter * (250 // len(letter.encode()))}.hltv"
    as_zip(path, MEMBERS)
    assert {(read.kind, read.status) for read in analyze([str(path)], []).inputs} == {("trace", "ok"), ("nodes", "ok")}
