"""Tasks on a fake cluster, without Dask and without waiting. ``test_schedule`` uses a real cluster."""

from __future__ import annotations

import logging
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perftool import __version__
from perftool.engine.ranks.batch import Batch, RankFile
from perftool.engine.ranks.cluster import Cluster, connect
from perftool.engine.ranks.schedule import TaskFailed
from perftool.errors import PerfToolError, SettingsError

Tell = Callable[["Future"], object]


@dataclass(eq=False)
class Future:
    """A client's future for a task. It is finished once ``end`` is called."""

    task: Batch
    tell: list[Tell] = field(default_factory=list)
    cancelled: bool = False
    lost: bool = False

    def add_done_callback(self, tell: Tell) -> None:
        self.tell.append(tell)

    def end(self) -> None:
        for tell in self.tell:
            tell(self)

    def result(self, timeout: float) -> str:
        assert timeout == 0
        if self.lost:
            raise TimeoutError("the worker that held the result is gone")
        (file,) = self.task.files
        if file.path == "bad":
            raise OSError(28, "no space left\non device")
        return f"{file.place} is done"

    def cancel(self) -> None:
        # Dask counts cancelled futures as finished.
        self.cancelled = True
        self.end()


@dataclass
class Client:
    """The client of a cluster with one thread. It keeps all futures that it has returned."""

    given: list[Future] = field(default_factory=list)

    def nthreads(self) -> dict[str, int]:
        return {"tcp://10.0.0.1:4000": 1}

    def submit(self, work: object, task: Batch, progress: None, **how: Any) -> Future:
        self.given.append(Future(task))
        return self.given[-1]


@dataclass(frozen=True)
class WatchedCluster(Cluster):
    """Ends the oldest future before each wait. A future whose file is called ``hangs`` never ends."""

    hangs: Callable[[str], bool] = lambda path: False
    outstanding: list[int] = field(default_factory=list)
    ended: list[Future] = field(default_factory=list)

    def _next(self, finished: Any) -> Any:
        left = [future for future in self.client.given if future.tell and not future.cancelled]
        self.outstanding.append(len(left))
        for future in [future for future in left if not self.hangs(future.task.files[0].path)][:1]:
            future.end()
            future.tell.clear()
            # A worker that dies loses its results. The program should already have fetched the results of earlier
            # tasks.
            self.ended.append(future)
            for earlier in self.ended[:-1]:
                earlier.lost = True
        return super()._next(finished)


def run(
    paths: list[str], hangs: Callable[[str], bool] = lambda path: False
) -> tuple[WatchedCluster, list[Any], list[str]]:
    """Analyse ``paths`` on a fake cluster, and return the cluster, the results and the progress shown."""
    cluster, said = WatchedCluster(Client(), 0, hangs), list[str]()
    tasks = [Batch((RankFile(path),)) for path in paths]
    made = list(cluster.run(tasks, lambda task, progress: "", lambda stage, _: said.append(stage)))
    return cluster, made, said


def test_results_come_in_the_order_of_the_tasks_and_few_tasks_are_out_at_a_time() -> None:
    paths = [f"rank{rank}" for rank in range(20)]
    cluster, made, said = run(paths)
    assert made == [f"{Path.cwd()}/{path} is done" for path in paths]
    assert said == [f"{done} of 20 ranks analysed" for done in range(21)]
    assert max(cluster.outstanding) == 4


def test_a_rank_that_hangs_or_fails_is_the_only_one_lost() -> None:
    cluster, made, _ = run(["a", "stuck", "bad", "b", "c", "d", "e"], lambda path: path == "stuck")
    assert [what for what in made if not isinstance(what, TaskFailed)] == [
        f"{Path.cwd()}/{path} is done" for path in "abcde"
    ]
    assert made[1] == TaskFailed("the cluster did not answer for 0 s")
    assert made[2] == TaskFailed("the cluster could not analyse the trace ([Errno 28] no space left on device)")
    assert [future.task.files[0].path for future in cluster.client.given if future.cancelled] == ["stuck"]


def test_a_silent_cluster_is_given_up_completely() -> None:
    cluster, made, _ = run([f"rank{rank}" for rank in range(50)], lambda _: True)
    assert made == [TaskFailed("the cluster did not answer for 0 s")] * 50
    # The program tried the cluster only twice, not once for every few ranks.
    assert len(cluster.client.given) == 8


@pytest.fixture
def dask(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The requests made to a fake Dask client, whose worker has our version."""
    asked: dict[str, Any] = {"versions": {"tcp://10.0.0.1:4000": __version__}}

    def client(**how: Any) -> SimpleNamespace:
        asked.update(how)
        return SimpleNamespace(
            wait_for_workers=lambda count, timeout: None,
            run=lambda ask, on_error: (time.sleep(asked.get("waits", 0)), asked["versions"])[1],
        )

    module = SimpleNamespace(Client=client, TimeoutError=TimeoutError)
    monkeypatch.setitem(sys.modules, "distributed", module)
    return asked


def test_how_the_scheduler_is_found(dask: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("scheduler.json").write_text("{}")
    for address, key, value in (
        ("dask://head:8786", "address", "tcp://head:8786"),
        ("tls://head:8786", "address", "tls://head:8786"),
        ("scheduler.json", "scheduler_file", "scheduler.json"),
    ):
        connect(address)
        assert dask.pop(key) == value
    for address in ("head:8786", "dask://", "nowhere.txt"):
        with pytest.raises(
            SettingsError, match="expected local, dask://HOST:PORT, tls://HOST:PORT or a scheduler file"
        ):
            connect(address)
    with pytest.raises(PerfToolError, match=r"nowhere\.json: no such file"):
        connect("nowhere.json")


def test_workers_with_another_version_are_refused_at_once(dask: dict[str, Any]) -> None:
    for version, says in (
        ("9.9", "has habana_perf_tool 9.9, but this is"),
        (ImportError("none"), "no habana_perf_tool"),
    ):
        dask["versions"] = {"tcp://10.0.0.1:4000": __version__, "tcp://10.0.0.2:4000": version}
        with pytest.raises(PerfToolError, match=rf"the worker tcp://10\.0\.0\.2:4000 has .*{says.split('has ')[-1]}"):
            connect("dask://head:8786")


def test_a_stopped_worker_gives_one_sentence(dask: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perftool.engine.ranks.cluster._CONNECT_S", 0.2)
    monkeypatch.setattr("perftool.engine.ranks.cluster._PATIENCE_S", 0)
    dask["waits"] = 5
    with pytest.raises(PerfToolError, match="a worker does not respond"):
        connect("dask://head:8786")


# A frame of 200,000 nested lists, which Dask would report with a traceback.
NESTED = struct.pack("<QQQ", 200_016, 1, 200_000) + b"\x91" * 200_000
ANSWERS = {
    "nothing": b"", "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n", "zeros": bytes(100), "ones": b"\xff" * 100,
    "nested": NESTED, "silence": None,
}  # fmt: skip


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_peer_that_is_not_a_scheduler_gives_one_sentence(
    answer: bytes | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If the answer is ``None``, the server accepts the connection but sends nothing."""
    pytest.importorskip("distributed")
    logging.getLogger("distributed").addHandler(caplog.handler)
    monkeypatch.setattr("perftool.engine.ranks.cluster._CONNECT_S", 0.5)
    monkeypatch.setattr("perftool.engine.ranks.cluster._PATIENCE_S", 0)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    held.append(server.accept()[0])
                    if answer is not None:
                        held[-1].sendall(answer)
                        held[-1].shutdown(socket.SHUT_WR)

        held: list[socket.socket] = []
        threading.Thread(target=serve, daemon=True).start()
        address = f"dask://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(PerfToolError, match=f"^--scheduler {address}: no Dask scheduler responds") as raised:
            connect(address)
    logging.getLogger("distributed").removeHandler(caplog.handler)
    assert "\n" not in str(raised.value)
    assert caplog.records == []
