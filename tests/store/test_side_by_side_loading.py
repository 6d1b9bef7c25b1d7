"""Two threads load a trace together, with the same result as a single thread."""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from events import document, x

from perftool.errors import InputError
from perftool.readers.files import stream
from perftool.store import load, trace_store
from perftool.store.connections import Connections
from perftool.store.together import SecondThread, Sequencer, StoppedError, Work

Loaded = tuple[list[tuple[Any, ...]], list[tuple[str, int, int | None]], str, dict[str, Any]]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BLOCK", 700)
    monkeypatch.setattr(stream, "COMPRESSED_BLOCK", 700)
    monkeypatch.setattr(load, "_BATCH", 2)


def loaded(data: bytes, threads: int, rank_for: load.RankFor = lambda metadata: 3) -> Loaded:
    with tempfile.TemporaryDirectory() as folder, closing(Connections(":memory:")) as connections:
        path = Path(folder) / "trace.json"
        path.write_bytes(data)
        connections.here().execute(load.CREATE_RAW)
        with closing(SecondThread(connections.interrupt, lambda: threads == 2)) as second:
            read, metadata = load.load_trace(connections.here, second.share, str(path), rank_for)
        rows = connections.here().execute("SELECT * FROM raw ORDER BY rowid").fetchall()
    assert read.events == len(rows)
    return rows, [(issue.kind, issue.count, issue.offset) for issue in read.issues], read.status, metadata


def test_rows_keep_the_order_of_the_file() -> None:
    rows, issues, status, _ = loaded(document([x(f"op{n}", n % 7, 1) for n in range(500)]), 2)
    assert [row[3] for row in rows] == [f"op{n}" for n in range(500)]
    assert (issues, status) == ([], "ok")


def test_rows_keep_the_order_of_the_file_on_disk_with_many_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "BLOCK", 100_000)
    monkeypatch.setattr(load, "_BATCH", 6)
    monkeypatch.setattr(trace_store, "cores", lambda: 8)
    path = tmp_path / "trace.json"
    path.write_bytes(document([x(f"op{n}", n % 7, 1) for n in range(12_000)]))
    with trace_store.TraceStore(1 << 40) as store:
        store.add_trace(str(path))
        assert [row["name"] for row in store.select("SELECT name FROM raw ORDER BY rowid")] == [
            f"op{n}" for n in range(12_000)
        ]


@pytest.mark.parametrize("seed", range(6))
def test_damage_is_repaired_as_by_one_thread(seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(document([x(f"op{n}", n, 1, text="a" * chance.randrange(40)) for n in range(300)]))
    for _ in range(chance.randrange(1, 6)):
        data[chance.randrange(40, len(data))] = chance.choice(b'"{}[],\\\x00\xff]')
    assert loaded(bytes(data), 2) == loaded(bytes(data), 1)


def test_nothing_after_the_end_is_loaded() -> None:
    """If metadata after the events is longer than a block, the splitter treats it as events."""
    after = b'],"other":[' + b",".join(document([x(f"no{n}", n, 1)])[16:-2] for n in range(200)) + b"]}"
    data = document([x(f"op{n}", n, 1) for n in range(200)])[:-2] + after
    two = loaded(data, 2)
    assert {row[3][:2] for row in two[0]} == {"op"}
    assert two == loaded(data, 1)


@pytest.mark.parametrize("here", [True, False])
def test_an_error_of_either_thread_ends_both(here: bool) -> None:
    main = threading.current_thread()

    def rank_for(metadata: dict[str, Any]) -> int:
        raise InputError("this rank is taken")

    def share(work: Work) -> None:
        """Only one of the threads works. Its error is raised on the thread that waits."""
        if here:
            work.do()
        else:
            with closing(SecondThread(lambda: None, lambda: True)) as second:
                second.share(_NotOn(main, work))

    with tempfile.TemporaryDirectory() as folder, closing(Connections(":memory:")) as connections:
        path = Path(folder) / "trace.json"
        path.write_bytes(document([x(f"op{n}", n, 1) for n in range(500)]))
        connections.here().execute(load.CREATE_RAW)
        with pytest.raises(InputError, match="taken"):
            load.load_trace(connections.here, share, str(path), rank_for)
        assert connections.here().execute("SELECT count(*) FROM raw").fetchall() == [(0,)]


class _NotOn:
    def __init__(self, thread: threading.Thread, work: Work) -> None:
        self._thread, self._work = thread, work
        self.stop = work.stop

    def do(self) -> None:
        if threading.current_thread() is not self._thread:
            self._work.do()


def test_turns_come_in_order() -> None:
    turns = Sequencer()
    order: list[int] = []

    def take(number: int) -> None:
        turns.wait(number)
        order.append(number)
        turns.end()

    _at_once([lambda number=number: take(number) for number in reversed(range(8))])
    assert order == list(range(8))


def test_a_waiter_learns_that_its_turn_never_comes() -> None:
    turns = Sequencer()
    called: list[int] = []

    def wait() -> None:
        with pytest.raises(StoppedError):
            turns.wait(1)
        called.append(1)

    _at_once([wait, wait, turns.stop])
    assert called == [1, 1]


def _at_once(calls: list[Callable[[], Any]]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def test_an_interrupt_leaves_the_beginning_of_the_file(tmp_path: Path) -> None:
    """The interrupt arrives between two batches, on either thread."""
    done: list[int] = []

    def progress(size: int) -> None:
        done.append(size)
        if len(done) == 2:
            raise KeyboardInterrupt

    path = tmp_path / "trace.json"
    path.write_bytes(document([x(f"op{n}", n, 1) for n in range(500)]))
    with closing(Connections(":memory:")) as connections:
        connections.here().execute(load.CREATE_RAW)
        with closing(SecondThread(connections.interrupt, lambda: True)) as second, pytest.raises(KeyboardInterrupt):
            load.load_trace(connections.here, second.share, str(path), lambda metadata: 0, progress)
        found = connections.here().execute("SELECT name FROM raw ORDER BY rowid").fetchall()
    assert [name for (name,) in found] == [f"op{n}" for n in range(len(found))]
    assert 0 < len(found) < 500
