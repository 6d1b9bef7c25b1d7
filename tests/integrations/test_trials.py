"""``record`` tries changes on the models of a program, without an effect on the program."""

from __future__ import annotations

import gzip
import json
import mmap
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("resource", reason="only a system with fork can try changes")

import torch
from recorded_script import run
from torch import nn

from perftool.integrations.record import trial, trials
from perftool.integrations.record.trial import Call, tried
from perftool.integrations.record.trials import Trials
from perftool.model.cut_text import CUT


def trials_of(module: nn.Module, *calls: Any) -> list[dict[str, Any]]:
    """What ``Trials`` finds when ``module`` is called with each of these inputs."""
    found = Trials()
    for one in calls:
        call = Call(module, (one,), {}, torch.is_grad_enabled())
        found.add(type(module).__name__, call, list(module.parameters()), list(module.buffers()))
    return found.found()


pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="changes are tried on Linux only")


@pytest.fixture(autouse=True)
def fast_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a change that applies, nothing is tried."""
    monkeypatch.setattr(trial, "_has_bf16", lambda: True)


def children() -> set[int]:
    """The child processes of this process, which may be those of other tests, too."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            number, _, rest = stat.read_text(errors="replace").partition(" ")
            if int(rest.rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(number))
    return found


def soon() -> float:
    return time.monotonic() + 60


class Net(nn.Module):
    """A model that does ``work`` when it is called."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.calls = 0
        self.work = work

    def forward(self, x: Any) -> Any:
        self.calls += 1
        self.work(x)
        return self.norm(self.inner(x))


def test_each_change_that_applies_is_tried() -> None:
    images = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, groups=4))
    call = Call(images, (torch.ones(2, 3, 8, 8),), {}, True)
    found = tried(call, soon())
    changes = ["base", "bf16", "bf16_dense", "channels_last", "bf16_channels_last"]
    times = [f"{change}_ns" for change in changes]
    assert [*found] == [*times, "forward", "failed", "error", "error_lines"]
    assert [*found["forward"]] == times
    assert all(found["forward"][time_ns] < found[time_ns] for time_ns in times)
    assert [found[name] for name in ("failed", "error", "error_lines")] == [[], "", []]
    assert min(found[time_ns] for time_ns in times) > 0
    # The model is as it was.
    assert all(one.weight.is_contiguous() and "forward" not in vars(one) for one in call.convolutions)


def test_layouts_are_tried_only_if_convolutions_matter() -> None:
    mostly_linear = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Flatten(), nn.Linear(64, 4096), nn.Linear(4096, 2048))
    found = tried(Call(mostly_linear, (torch.ones(1, 1, 8, 8),), {}, True), soon())
    assert [key for key in found if key.endswith("_ns")] == ["base_ns", "bf16_ns"]


def test_the_fastest_changes_run_again_first(monkeypatch: pytest.MonkeyPatch) -> None:
    times = trial._Times(Call(nn.Linear(2, 2), (), {}, True), soon(), soon())
    ran = []

    def run(change: Any) -> None:
        ran.append(change.key)
        times._taken.setdefault(change.key, []).append({"slow": 2.0}.get(change.key, 1.0))

    monkeypatch.setattr(times, "_run", run)
    times.measure([trial._Change("slow"), trial._Change("fast")])
    assert ran[:6] == ["base", "slow", "fast", "base", "fast", "slow"]


def test_weights_are_converted_only_without_a_backward_pass() -> None:
    model = nn.Linear(4, 4)
    with torch.no_grad():
        found = tried(Call(model, (torch.ones(2, 4),), {}, False), soon())
    assert [*found][:3] == ["base_ns", "bf16_ns", "bf16_weights_ns"]
    assert model.weight.dtype is torch.float32
    assert "bf16_weights_ns" not in tried(Call(model.double(), (torch.ones(2, 4).double(),), {}, False), soon())


def test_without_fast_bf16_and_images_nothing_can_be_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_has_bf16", lambda: False)
    assert tried(Call(nn.Linear(2, 2), (torch.ones(1, 2),), {}, True), soon()) == {}


class Strict(nn.Linear):
    """A model that fails under autocast."""

    def forward(self, x: Any) -> Any:
        if torch.is_autocast_enabled("cpu"):
            raise TypeError("two\ntypes" + "s" * 500 * (x.shape[0] > 1))
        return super().forward(x)


def test_the_error_of_a_change_names_a_line_of_the_program() -> None:
    (found,) = trials_of(Strict(2, 2), torch.ones(2, 2))
    assert found["failed"] == ["bf16"]
    assert found["error"].startswith("TypeError: two typess")
    assert found["error"].endswith(CUT)
    assert Path(found["error_line"].rpartition(":")[0]).name == Path(__file__).name


_IN_A_NEW_PROCESS = """
import sys
sys.path[:0] = sys.argv[1:]
import test_trials, torch
(found,) = test_trials.trials_of(torch.nn.Conv2d(3, 4, 3), torch.ones(2, 3, 8, 8))
assert "channels_last_ns" in found, found
"""


def test_a_backward_pass_is_tried_in_a_program_that_has_run_none() -> None:
    folder = Path(__file__).parent
    subprocess.run([sys.executable, "-c", _IN_A_NEW_PROCESS, str(folder), str(folder.parent)], check=True)


def test_weights_with_complex_numbers_are_not_converted() -> None:
    model = nn.Linear(4, 4)
    model.register_buffer("turns", torch.ones(2, dtype=torch.complex64))
    with torch.no_grad():
        found = tried(Call(model, (torch.ones(2, 4),), {}, False), soon())
    assert "bf16_weights_ns" not in found
    assert found["failed"] == []


def test_a_change_that_the_model_does_not_support_is_named() -> None:
    found = tried(Call(Strict(2, 2), (torch.ones(1, 2),), {}, True), soon())
    assert found["failed"] == ["bf16"]
    assert found["error"] == "TypeError: two types"
    assert found["error_lines"][0][0] == __file__
    assert "bf16_ns" not in found


@pytest.mark.parametrize("result", ["losses", "dict", "object", "nothing"])
def test_the_backward_pass_begins_at_all_results(result: str) -> None:
    class Results:
        def __init__(self, first: Any) -> None:
            self.first = first

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            y, other = self.first(x), self.second(x)
            forms = {"losses": (y.sum(), [other]), "dict": {"y": y, "sum": other.sum()}, "object": Results(y + other)}
            return forms.get(result)

    model = Model()
    assert tried(Call(model, (torch.ones(1, 2),), {}, True), soon())["base_ns"]
    for layer in (model.first, model.second):
        assert (layer.weight.grad is None) == (result == "nothing")


def test_the_program_does_not_notice(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = (tmp_path / "log").open("w", buffering=1, encoding="utf-8")

    def work(x: Any) -> None:
        print("called", flush=True)
        log.write("called\n")
        os.write(1, b"called")
        x.add_(1)
        torch.rand(1)
        random.random()
        os.environ["CALLED"] = "1"

    net = Net(work)
    batch = torch.ones(3, 4).share_memory_()  # type: ignore[no-untyped-call]
    before = torch.get_rng_state(), random.getstate(), {key: one.clone() for key, one in net.state_dict().items()}
    (found,) = trials_of(net, batch, batch)

    assert (found["path"], found["calls"], found["base_ns"] > 0) == ("Net", 2, True)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert all(torch.equal(one, before[2][key]) for key, one in net.state_dict().items())
    assert torch.equal(batch, torch.ones(3, 4))
    assert (net.calls, net.inner.weight.grad, "CALLED" in os.environ) == (0, None, False)
    assert (tmp_path / "log").read_text() == ""
    assert capfd.readouterr().out == ""
    log.close()


def test_calls_of_many_shapes_count_as_the_last_one_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "_MOST_TRIED", 2)
    found = trials_of(nn.Linear(2, 2), *(torch.ones(length, 2) for length in (1, 2, 1, 3, 4)))
    assert [one["calls"] for one in found] == [2, 3]


def test_a_call_that_fails_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    forks: list[float] = []

    def failed(_: Any, limit_s: float) -> bytes:
        forks.append(limit_s)
        return b""

    monkeypatch.setattr(trials, "_from_child", failed)
    assert trials_of(nn.Linear(2, 2), *[torch.ones(1, 2)] * 9) == []
    assert len(forks) == 1


def test_a_call_may_change_its_inputs() -> None:
    class Graph:
        def __init__(self) -> None:
            self.x = torch.ones(3, 2)

    class Encoder(nn.Linear):
        def forward(self, graph: Any) -> Any:
            graph.x = super().forward(graph.x)
            return graph

    graph = Graph()
    (found,) = trials_of(Encoder(2, 5), graph)
    assert found["base_ns"] > 0
    assert graph.x.shape == (3, 2)


def test_shared_values_and_mapped_files_stay_as_they_are(tmp_path: Path) -> None:
    value = multiprocessing.Value("i", 0)
    (tmp_path / "mapped").write_bytes(bytes(4096))
    with open(tmp_path / "mapped", "r+b") as file, mmap.mmap(file.fileno(), 4096) as mapped:

        def work(_: Any) -> None:
            value.get_lock().acquire()
            value.value += 1
            value.get_lock().release()
            mapped[0] += 1

        assert len(trials_of(Net(work), torch.ones(3, 4))) == 1
        assert (value.value, mapped[0]) == (0, 0)


@pytest.mark.parametrize("what", ["file", "process", "socket"])
def test_a_model_that_opens_something_has_no_trial(what: str, tmp_path: Path) -> None:
    def work(_: Any) -> None:
        if what == "file":
            (tmp_path / "log").write_text("called")
        elif what == "process":
            subprocess.run(["touch", str(tmp_path / "log")], check=True)
        else:
            socket.socket().close()

    assert trials_of(Net(work), torch.ones(3, 4)) == []
    assert not (tmp_path / "log").exists()


def test_the_program_has_no_child_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[int]] = []
    line = trials._line

    def watched(source: int, until: float) -> bytes:
        seen.append(children())
        return line(source, until)

    monkeypatch.setattr(trials, "_line", watched)
    before = children()
    assert len(trials_of(Net(lambda _: None), torch.ones(3, 4))) == 1
    assert seen[0] <= before


def test_without_a_fork_there_is_no_trial_and_no_pipe_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", refused)
    before = len(os.listdir("/proc/self/fd"))
    assert trials_of(nn.Linear(2, 2), torch.ones(1, 2)) == []
    assert len(os.listdir("/proc/self/fd")) == before


def crash(_: Any) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def fail(_: Any) -> None:
    raise ValueError


def leave(_: Any) -> None:
    os._exit(0)


@pytest.mark.parametrize("work", [crash, fail, leave, lambda _: time.sleep(60)])
def test_a_model_that_does_not_run_again_has_no_trial(
    work: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "_ALL_S", 0.3)
    monkeypatch.setattr(trials, "_LATE_S", 0.3)
    before = children()
    assert trials_of(Net(work), torch.ones(3, 4)) == []
    assert children() <= before


def test_ctrl_c_ends_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(trials, "_line", interrupted)
    before = children()
    with pytest.raises(KeyboardInterrupt):
        trials_of(Net(lambda _: time.sleep(60)), torch.ones(3, 4))
    assert children() <= before


def test_a_program_that_watches_its_children_gets_no_trial() -> None:
    handler = signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        assert trials_of(nn.Linear(2, 2), torch.ones(1, 2)) == []
    finally:
        signal.signal(signal.SIGCHLD, handler)


def test_parameters_in_shared_memory_get_no_trial() -> None:
    assert trials_of(nn.Linear(2, 2).share_memory(), torch.ones(1, 2)) == []


def test_a_module_without_parameters_gets_no_trial() -> None:
    assert trials_of(nn.ReLU(), torch.ones(1, 2)) == []


def test_several_threads_work_in_the_child() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model = nn.Linear(512, 512)
        # This starts the threads that a forked child lacks.
        model(torch.ones(512, 512)).sum().backward()
        (found,) = trials_of(model, torch.ones(512, 512))
    finally:
        torch.set_num_threads(threads)
    assert found["base_ns"] > 0


SCRIPT = """
import torch
model, loss = torch.nn.Conv2d(3, 3, 1), torch.nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), 0.001)
for _ in range(6):
    optimizer.zero_grad(); loss(model(torch.ones(1, 3, 8, 8)), torch.zeros(1)).backward(); optimizer.step()
"""


@pytest.mark.parametrize("option", ["--trials", "--no-trials"])
def test_record_tries_changes(tmp_path: Path, option: str) -> None:
    run(tmp_path, SCRIPT, "--active", "2", option)
    (trace,) = tmp_path.glob("perftool_record/*/*.json.gz")
    recorded = json.loads(gzip.decompress(trace.read_bytes()))["perftoolRecording"]
    found = [(one["path"], one["calls"], one["base_ns"] > 0) for one in recorded.get("trials", [])]
    assert found == ([("Conv2d", 1, True)] if option == "--trials" else [])


UNUSED = """
import torch
writer, judge = torch.nn.Conv2d(3, 3, 1), torch.nn.Conv2d(3, 1, 1)
optimizer = torch.optim.SGD(judge.parameters(), 0.001)
for _ in range(6):
    optimizer.zero_grad()
    image = writer(torch.ones(1, 3, 8, 8))
    (judge(image.detach()).mean() + judge(torch.ones(1, 3, 8, 8)).mean()).backward()
    judge(image)
    optimizer.step()
"""


def test_calls_without_a_backward_pass_count_apart(tmp_path: Path) -> None:
    run(tmp_path, UNUSED, "--active", "2")
    (trace,) = tmp_path.glob("perftool_record/*/*.json.gz")
    recorded = json.loads(gzip.decompress(trace.read_bytes()))["perftoolRecording"]
    assert sorted((one["calls"], one["backward"]) for one in recorded["trials"]) == [(1, False), (1, False), (2, True)]
    assert recorded["trials"][0]["base_ns"] > 0


GROUP = """
import tempfile
torch.distributed.init_process_group("gloo", init_method="file://" + tempfile.mktemp(), rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer ="""


def test_the_module_of_a_distributed_model_is_tried(tmp_path: Path) -> None:
    run(tmp_path, SCRIPT.replace("\noptimizer =", GROUP), "--active", "2")
    (trace,) = tmp_path.glob("perftool_record/*/*.json.gz")
    recorded = json.loads(gzip.decompress(trace.read_bytes()))["perftoolRecording"]
    assert [one["path"] for one in recorded["trials"]] == ["Conv2d"]
