"""Killed workers whose ranks are retried, a real Dask cluster, and URLs."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from events import document, kernel, runtime, step, x

from perftool.engine.analysis import analysed, analyze
from perftool.engine.ranks.batch import Batch, RankFile
from perftool.engine.ranks.cluster import connect
from perftool.engine.ranks.part import analyse_batch
from perftool.engine.ranks.schedule import Processes
from perftool.engine.report import overview
from perftool.engine.rules.pack import builtin_folder, load_pack
from perftool.errors import InputError, MissingExtraError, PerfToolError
from perftool.readers.discover import find_inputs
from perftool.readers.files.remote import list_url, local_copy
from perftool.reporters.json import as_dict

RULES = [rule for rule in load_pack(builtin_folder()) if rule.code in ("TRC000", "GAP101", "COL103", "COL108")]
RANKS = 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of three ranks. The last one computes for the longest time."""
    for rank in range(RANKS):
        (tmp_path / f"rank{rank}.json").write_bytes(trace(rank))
    return tmp_path


def test_workers_import_nothing_from_the_working_directory(folder: Path, tmp_path: Path) -> None:
    """The folder of traces may contain a module that shadows one of multiprocessing's imports."""
    for name in ("multiprocessing", "random", "perftool", "sitecustomize"):
        (folder / f"{name}.py").write_text("import os; os.open(__file__ + '.ran', os.O_CREAT)\n")
    program = tmp_path / "bin" / "program"
    program.parent.mkdir()
    program.write_text("from perftool.__main__ import program\nif __name__ == '__main__':\n    program()\n")
    command = [sys.executable, str(program), "lint", ".", "--jobs", "2", "--select", "TRC"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)

    # On a slow machine, the program also says what it is doing.
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert list(folder.glob("*.ran")) == []


def trace(rank: int) -> bytes:
    events = [
        event
        for at in (0, 1000)
        for event in (
            step(at // 1000, at, 1000),
            x("aten::mm", at, 50),
            runtime("cudaLaunchKernel", at + 10, 20, at + 1),
            kernel("gemm", at + 100, 300 + 100 * rank, at + 1),
            kernel("ncclDevKernel_AllReduce", at + 800 + rank, 100 - rank, at + 2, stream=9),
        )
    ]
    return document(events, distributedInfo={"rank": rank, "world_size": RANKS})


def killing(pids: Callable[[], list[int]], after: int) -> tuple[Callable[[str, int], None], list[int]]:
    """Return a progress function that kills one of ``pids`` once ``after`` ranks are done, and the list of killed
    processes.

    Several ranks may finish at the same time, so the count may skip ``after``.
    """
    killed: list[int] = []

    def progress(stage: str, _: int) -> None:
        done = re.match(r"(\d+) of", stage)
        if not killed and done and int(done[1]) >= after:
            for pid in pids():
                # An idle process may have ended in the meantime.
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                    break

    return progress, killed


# A worker that sends a result: the pool catches all exceptions, and may wait for a lock of a killed process.
SENDING = """
import sys, time
from contextlib import suppress
from perftool.engine.ranks.schedule import _prepare_worker
_prepare_worker(sys.argv[1])
with suppress(BaseException):
    print("ready", flush=True)
    time.sleep(60)
time.sleep(60)
"""


def test_a_worker_between_two_tasks_ends_at_once(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", SENDING, str(tmp_path)], stdout=subprocess.PIPE) as worker:
        assert worker.stdout
        assert worker.stdout.readline() == b"ready\n"
        worker.terminate()
        assert worker.wait(30) == 128 + signal.SIGTERM


def test_the_ranks_of_a_killed_process_are_retried_from_urls_too(folder: Path) -> None:
    pytest.importorskip("fsspec")
    progress, killed = killing(lambda: [child.pid or 0 for child in multiprocessing.active_children()], 1)

    report = analyze([f"file://{folder}"], RULES, progress, schedule=Processes(2))

    assert len(killed) == 1
    assert [(rank.rank, rank.status) for rank in report.ranks] == [(rank, "ok") for rank in range(RANKS)]
    assert as_dict(report) == as_dict(analyze([f"file://{folder}"], RULES))


def test_a_rank_that_kills_every_process_is_unreadable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "rank0.json").unlink()
    monkeypatch.setattr("perftool.engine.ranks.joined.analyse_batch", dies_on_rank_2)

    report = analyze([str(folder)], RULES, schedule=Processes(2))

    assert [(rank.rank, rank.status) for rank in report.ranks] == [(1, "ok"), (2, "unreadable")]
    (finding,) = [finding for finding in report.findings if finding.code == "TRC000"]
    assert "was killed twice" in finding.message


def test_a_rank_that_breaks_the_program_is_the_only_one_lost(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "rank0.json").unlink()
    steps = overview.steps

    def breaks(store: Any) -> Any:
        if 2 in store.metadata:
            raise ZeroDivisionError("division by zero")
        return steps(store)

    monkeypatch.setattr(overview, "steps", breaks)

    report = analyze([str(folder)], RULES)

    assert [(rank.rank, rank.status) for rank in report.ranks] == [(1, "ok"), (2, "unreadable")]
    (finding,) = [finding for finding in report.findings if finding.code == "TRC000"]
    assert f"{folder}/rank2.json: internal error: ZeroDivisionError: division by zero" in finding.message


def dies_on_rank_2(task: Batch, progress: Any = None, **shared: Any) -> Any:
    if any("rank2" in file.path for file in task.files):
        os.kill(os.getpid(), signal.SIGKILL)
    return analyse_batch(task, progress, **shared)


def holds_on(task: Batch, _: Any = None) -> str:
    """Return immediately for rank 0. Otherwise, work for a minute in a folder that is removed at the end."""
    if "rank0" in task.files[0].path:
        return "done"
    with tempfile.TemporaryDirectory(dir=Path(task.files[0].path).parent) as folder:
        Path(folder, "begun").touch()
        time.sleep(60)
    return "done"


def test_an_interrupt_waits_for_no_worker_and_leaves_no_folder(tmp_path: Path) -> None:
    tasks = [Batch((RankFile(str(tmp_path / f"rank{rank}")),)) for rank in range(2)]

    def progress(stage: str, _: int) -> None:
        if stage.startswith("1 of 2"):
            while not list(tmp_path.glob("*/begun")):
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(Processes(2).run(tasks, holds_on, progress))

    # A worker that was still running would not have removed its folder yet.
    assert list(tmp_path.iterdir()) == []


def will_not_end(task: Batch, _: Any = None) -> str:
    """Return immediately for rank 0. Otherwise, leave a temporary folder behind and ignore SIGTERM."""
    if "rank0" in task.files[0].path:
        return "done"
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    Path(task.files[0].path).write_text(tempfile.mkdtemp())
    time.sleep(60)
    return "done"


def test_a_worker_that_does_not_end_leaves_no_folder_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perftool.engine.ranks.schedule._ENDING_S", 0.1)
    tasks = [Batch((RankFile(str(tmp_path / f"rank{rank}")),)) for rank in range(2)]
    said = tmp_path / "rank1"

    def progress(stage: str, _: int) -> None:
        if stage.startswith("1 of 2"):
            while not (said.exists() and said.read_text()):
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(Processes(2).run(tasks, will_not_end, progress))

    assert not Path(said.read_text()).exists()


def test_ctrl_c_does_not_reach_workers(tmp_path: Path) -> None:
    task = Batch((RankFile(str(tmp_path / "rank0")),))
    assert list(Processes(1).run([task], sends_itself_ctrl_c, None)) == ["done"]


def sends_itself_ctrl_c(task: Batch, _: Any = None) -> str:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.1)
    return "done"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Dask cluster of two processes on this machine. Its timeouts are long enough for a busy machine."""
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    monkeypatch.setattr("perftool.engine.ranks.cluster._CONNECT_S", 600)
    patience = {f"distributed.comm.timeouts.{what}": "600s" for what in ("connect", "tcp")}
    with (
        dask.config.set(patience),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
        ) as running,
    ):
        yield running


def pids(cluster: Any) -> list[int]:
    return [worker.pid for worker in cluster.workers.values()]


def test_a_cluster_that_loses_a_worker_gives_the_same_report(
    folder: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = connect(cluster.scheduler_address.replace("tcp://", "dask://"))
    # Relative paths refer to ``folder`` rather than to the working directory of the workers.
    monkeypatch.chdir(folder)
    progress, killed = killing(lambda: pids(cluster), 1)

    report = analyze(["."], RULES, progress, schedule=schedule)
    schedule.client.close()

    assert len(killed) == 1
    assert as_dict(report) == as_dict(analyze(["."], RULES))


def test_an_address_without_a_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("perftool.engine.ranks.cluster._CONNECT_S", 0.5)
    with pytest.raises(PerfToolError, match="no Dask scheduler responds"):
        connect("dask://127.0.0.1:9")


def test_a_cluster_without_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"habana-perf-tool\[cluster\]"):
        connect("dask://127.0.0.1:8786")


@pytest.fixture
def bucket() -> Iterator[str]:
    """The URL of an in-memory folder that contains a run of two ranks and a file that is not a trace."""
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    for rank in range(2):
        system.pipe(f"/run/rank{rank}.json", trace(rank))
    system.pipe("/run/notes.md", b"text")
    yield "memory://run"
    system.rm("/run", recursive=True)


def test_a_remote_folder_is_read(bucket: str) -> None:
    with analysed(find_inputs([bucket])) as run:
        assert [(read.path, read.rank, read.status) for read in run.store.inputs] == [
            ("memory:///run/rank0.json", 0, "ok"), ("memory:///run/rank1.json", 1, "ok"),
        ]  # fmt: skip


@pytest.mark.parametrize(("what", "ranks"), [("/*.json", (0, 1)), ("/rank*", (0, 1)), ("/rank1.json", (1,))])
def test_remote_traces_are_found(bucket: str, what: str, ranks: tuple[int, ...]) -> None:
    assert list(find_inputs([bucket + what]).traces) == [f"memory:///run/rank{rank}.json" for rank in ranks]


def test_what_is_not_read_in_a_remote_folder_is_named(bucket: str) -> None:
    system = pytest.importorskip("fsspec").filesystem("memory")
    for name in ("rank2.PART", "rank3.json.xz"):
        system.pipe(f"/run/{name}", b"x")
    found = find_inputs([bucket])
    assert found.unread_parts == ("memory:///run/rank2.PART",)
    assert "memory:///run/rank3.json.xz was not read" in " ".join(found.notes)
    assert [doubt.file for doubt in found.doubts] == ["memory:///run/rank3.json.xz"]


def test_a_remote_file_that_no_url_can_name_is_an_error(bucket: str) -> None:
    pytest.importorskip("fsspec").filesystem("memory").pipe("/run/rank0.json::rank1.json", trace(1))
    with pytest.raises(InputError, match="contains '::'"):
        find_inputs([bucket])


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("memory://nothing/here.json", InputError, "memory://nothing/here.json: no files"),
        ("memory://nothing/*.json", InputError, "no files"),
        ("nosuch://bucket/a.json", InputError, "nosuch"),
    ],
)
def test_a_missing_remote_file_is_reported(url: str, error: type[Exception], message: str) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(error, match=message.replace("*", r"\*")):
        analyze([url], RULES)


def test_urls_without_fsspec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(MissingExtraError, match=r"a URL needs fsspec \(pip install 'habana-perf-tool\[remote\]'\)"):
        list_url("s3://bucket/run")


def test_a_file_system_without_its_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setitem(__import__("sys").modules, "s3fs", None)
    with pytest.raises(MissingExtraError, match="fsspec cannot open s3:// here"):
        list_url("s3://bucket/run")


def test_a_file_of_this_machine_is_not_copied(tmp_path: Path) -> None:
    path = str(tmp_path / "trace.json")
    with local_copy(path) as place:
        assert place == path
