"""Snapshots of PyTorch's CUDA allocator as inputs."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from perftool import analyze
from perftool.errors import InputError
from perftool.readers.trace import memory_snapshot
from perftool.store.trace_store import TraceStore

MIB = 1 << 20
FRAMES = [
    {"filename": "??", "line": 0, "name": "at::empty"},
    {"filename": "/x/site-packages/torch/nn/functional.py", "line": 3, "name": "linear"},
    {"filename": "/app/train.py", "line": 12, "name": "forward"},
]


def entry(action: str, addr: int, size: int, at: int, **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": addr, "size": size * MIB, "stream": 0, "time_us": at, "frames": FRAMES, **more}


HISTORY = [
    entry("segment_alloc", 10, 20, 1000), entry("alloc", 10, 8, 1001), entry("alloc", 20, 4, 1500),
    entry("free_requested", 10, 8, 2000), entry("free_completed", 10, 8, 2001), entry("snapshot", 0, 0, 2002),
]  # fmt: skip
SEGMENTS = [
    {"device": 0, "address": 10, "total_size": 20 * MIB, "allocated_size": 4 * MIB},
    {"device": 0, "address": 99, "total_size": 2 * MIB, "allocated_size": MIB},
]
SNAPSHOT = {"segments": SEGMENTS, "device_traces": [HISTORY, []], "allocator_settings": {}}


def saved(folder: Path, snapshot: Any) -> str:
    path = folder / "snapshot.json"
    path.write_text(json.dumps(snapshot), encoding="utf-8")
    return str(path)


def test_the_report_on_a_snapshot_is_about_memory(tmp_path: Path) -> None:
    assert analyze(saved(tmp_path, SNAPSHOT)).verdict.headline == (
        "The recording shows memory but no times. At its peak: 13.0 MiB allocated, 22.0 MiB reserved; "
        "the largest part: temporary (8.00 MiB, allocated by /app/train.py(12): forward)."
    )


def test_a_snapshot_fills_the_tables_of_memory(tmp_path: Path) -> None:
    path = saved(tmp_path, SNAPSHOT)
    with TraceStore() as store:
        read = store.add_trace(path)
        store.build(["memory", "allocations", "memory_peak"])
        memory = store.select("SELECT ts, bytes, allocated, reserved FROM memory ORDER BY ordinal")
        blocks = store.select('SELECT ts, "end", bytes, line FROM allocations ORDER BY ts')
        peak = store.select("SELECT kind, bytes FROM memory_peak ORDER BY bytes")

    assert (read.path, read.status) == (path, "ok")
    assert [tuple(row.values()) for row in memory] == [
        (1_001_000, 8 * MIB, 9 * MIB, 22 * MIB), (1_500_000, 4 * MIB, 13 * MIB, 22 * MIB),
        (2_000_000, -8 * MIB, 5 * MIB, 22 * MIB),
    ]  # fmt: skip
    assert [tuple(row.values()) for row in blocks] == [
        (1_001_000, 2_000_000, 8 * MIB, "/app/train.py(12): forward"),
        (1_500_000, None, 4 * MIB, "/app/train.py(12): forward"),
    ]
    # Blocks without an event were allocated before the history began.
    assert [tuple(row.values()) for row in peak] == [("before_recording", MIB), (None, 4 * MIB), ("temporary", 8 * MIB)]


def refusal(path: str) -> str:
    with TraceStore() as store, pytest.raises(InputError) as error:
        store.add_trace(path)
    return str(error.value)


def test_a_pickle_is_refused_with_the_way_to_convert_it(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(SNAPSHOT))

    assert refusal(str(path)) == (
        f"{path}: refused: a pickled memory snapshot; save it as JSON: "
        "json.dump(torch.cuda.memory._snapshot(), f, default=str)"
    )


def test_a_snapshot_without_a_history_says_how_to_record_one(tmp_path: Path) -> None:
    assert "_record_memory_history() first" in refusal(saved(tmp_path, {**SNAPSHOT, "device_traces": [[], []]}))


@pytest.mark.parametrize("traces", [None, "text", [[]], {}])
def test_other_values_are_not_a_history(tmp_path: Path, traces: Any) -> None:
    assert "without a history" in refusal(saved(tmp_path, {"segments": [], "device_traces": traces}))


def test_damaged_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    path.write_text('{"segments": [], "device_traces": [[', encoding="utf-8")

    assert "damaged memory snapshot" in refusal(str(path))


def test_impossible_entries_are_left_out(tmp_path: Path) -> None:
    odd = [7, None, {"action": ["alloc"]}, {"size": 4}, entry("alloc", 1, 1, 5, frames="no"), entry("alloc", 2, -1, 6)]
    with TraceStore() as store:
        store.add_trace(saved(tmp_path, {"segments": [7], "device_traces": [odd, 7]}))
        store.build(["allocations"])
        assert store.select("SELECT bytes, line FROM allocations") == [{"bytes": MIB, "line": None}]


def test_a_frame_whose_name_nests_deeply_is_left_out(tmp_path: Path) -> None:
    deep: list[Any] = []
    for _ in range(600):
        deep = [deep]
    frames = [{"filename": "/app/a.py", "line": 1, "name": deep}, {"filename": "/app/b.py", "line": 2, "name": "f"}]
    with TraceStore() as store:
        snapshot = {"segments": [], "device_traces": [[entry("alloc", 1, 1, 5, frames=frames)]]}
        store.add_trace(saved(tmp_path, snapshot))
        store.build(["allocations"])
        assert store.select("SELECT line FROM allocations") == [{"line": "/app/b.py(2): f"}]


def test_a_trace_with_the_keys_of_a_snapshot_is_a_trace(tmp_path: Path) -> None:
    """Otherwise, a gate would pass without reading the events."""
    path = saved(tmp_path, {**SNAPSHOT, "traceEvents": [{"ph": "X", "ts": 1, "dur": 1, "name": "a", "cat": "cpu_op"}]})
    with TraceStore() as store:
        assert store.add_trace(path).events == 1
    assert not memory_snapshot.is_snapshot_file(path)


def test_impossible_numbers_of_an_allocator_are_missing(tmp_path: Path) -> None:
    """Totals are counted backwards from the end, where 0 bytes are allocated. More than 16 TiB is impossible."""
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    entries = [{**entry("alloc", 1, 1, 5), "addr": deep}, {**entry("alloc", 2, 1, 6), "time_us": deep}]
    large = [{**entry("alloc", number, 1, 7), "size": 2**40} for number in range(2100)]
    with TraceStore() as store:
        store.add_trace(saved(tmp_path, {"segments": [], "device_traces": [entries + large]}))
        store.build(["memory", "allocations"])
        assert store.select("SELECT count(*) AS n, count(allocated) AS told FROM memory") == [{"n": 2102, "told": 17}]


def test_segments_of_many_devices_take_linear_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 180 kB of empty segments and devices, this took 24 s."""
    asked = 0

    class Segment(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            nonlocal asked
            asked += 1
            return super().get(key, default)

    segments = [Segment(device=number, allocated_size=1, total_size=2) for number in range(300)]
    snapshot = {"segments": segments, "device_traces": [[entry("alloc", 1, 1, 5)], *[[]] * 300]}
    monkeypatch.setattr(memory_snapshot.orjson, "loads", lambda _: snapshot)
    memory_snapshot.write_trace(saved(tmp_path, {}), tmp_path / "trace.json")
    assert asked <= 3 * len(segments)


def test_a_gzipped_snapshot_is_read_too(tmp_path: Path) -> None:
    plain = Path(saved(tmp_path, SNAPSHOT))
    packed = tmp_path / "packed.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    found = []
    for path in (plain, packed):
        with TraceStore() as store:
            store.add_trace(str(path))
            store.build(["memory"])
            found.append(store.select("SELECT ts, bytes, allocated, reserved FROM memory ORDER BY ordinal"))
    assert found[0] == found[1]
    assert len(found[1]) == 3


def test_a_gzipped_snapshot_is_bounded_by_what_it_unpacks_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_snapshot, "_MOST", 1 << 20)
    packed = tmp_path / "bomb.json.gz"
    packed.write_bytes(gzip.compress(b'{"segments": [], "device_traces": [' + b" " * (32 << 20)))
    with pytest.raises(InputError, match="larger than 1 MiB, too large for a memory snapshot"):
        memory_snapshot.write_trace(str(packed), tmp_path / "trace.json")


def test_damaged_compression_is_refused(tmp_path: Path) -> None:
    """A wrong checksum means that the numbers may be wrong."""
    data = bytearray(gzip.compress(Path(saved(tmp_path, SNAPSHOT)).read_bytes()))
    data[-8] ^= 1
    path = tmp_path / "snapshot.json.gz"
    path.write_bytes(data)

    assert "the gzip stream is damaged" in refusal(str(path))
