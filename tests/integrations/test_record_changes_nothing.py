"""`record` changes nothing in the program that it records: its models, handlers, children, warnings and patches."""

from __future__ import annotations

import copy
import gzip
import inspect
import io
import json
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from recorded_script import run
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters
from torch.jit import script
from torch.nn.modules.module import _global_forward_pre_hooks
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile
from torch.utils.data import dataloader
from torch.utils.flop_counter import FlopCounterMode
from warm_python import warm_python

from perftool.integrations.endings import Endings
from perftool.integrations.machine import Watch
from perftool.integrations.record.plan import Plan
from perftool.integrations.record.steps import First, Steps
from perftool.output_file import whole_file

# Runs ``handler`` when the program's own profiler has recorded a step. The profiler is watched, as under ``record``.
OWN_PROFILER = """
import os, signal, sys, threading, torch
from perftool.integrations.record.plan import Plan
from perftool.integrations.record.program_profilers import ProgramProfilers
watched = ProgramProfilers(Plan(sys.argv[1], sys.argv[1]))

def handler(profiler):
    {handler}

schedule = torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=1)
with torch.profiler.profile(schedule=schedule, on_trace_ready=handler) as profiler:
    for _ in range(4):
        torch.ones(1)
        profiler.step()
print("over")
"""


@pytest.fixture
def ended() -> list[int]:
    return []


@pytest.fixture(autouse=True)
def no_hook_stays() -> Iterator[None]:
    """Once code has been compiled, the recorder's global hook stays. Keep it from affecting other tests."""
    counters.clear()
    yield
    _global_forward_pre_hooks.clear()


@pytest.fixture
def calls(ended: list[int]) -> Iterator[Steps]:
    steps = Steps("forward", lambda: ended.append(1))
    yield steps
    steps.close()


def test_the_module_whose_calls_are_steps_can_be_saved_copied_and_scripted(calls: Steps, ended: list[int]) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model(torch.ones(1, 2))
    saved = io.BytesIO()
    torch.save(model, saved)
    assert not re.search(rb"perftool|NullHandler", saved.getvalue())
    assert len(model._forward_pre_hooks) == 0
    saved.seek(0)
    copies = [torch.load(saved, weights_only=False), copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    for one in [*copies, torch.jit.script(model), torch.jit.script(copies[1])]:
        one(torch.ones(1, 2))
    assert len(ended) == 1
    model(torch.ones(1, 2))
    assert len(ended) == 2
    calls.close()
    model(torch.ones(1, 2))
    assert len(ended) == 2


def test_a_program_can_save_and_restore_the_hooks_of_a_module(calls: Steps, ended: list[int]) -> None:
    model, plain = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    plain.load_state_dict(model.state_dict())
    model(torch.ones(1, 2))
    assert not model._forward_pre_hooks
    assert not OrderedDict(model._forward_pre_hooks.items())
    assert type(model._forward_pre_hooks.copy()) is OrderedDict
    assert (model._forward_pre_hooks | {1: 2}, {1: 2} | model._forward_pre_hooks) == ({1: 2}, {1: 2})
    assert pickle.dumps(model._forward_pre_hooks) == pickle.dumps(plain._forward_pre_hooks)
    model._forward_pre_hooks = model._forward_pre_hooks.copy()
    model(torch.ones(1, 2))
    assert len(ended) == 1


def test_after_the_recording_a_module_has_an_ordinary_dict_of_hooks(calls: Steps) -> None:
    model = torch.nn.Linear(2, 2)
    model(torch.ones(1, 2))
    calls.close()
    assert type(model._forward_pre_hooks) is OrderedDict


def test_calls_of_a_compiled_module_are_steps(calls: Steps, ended: list[int]) -> None:
    model = torch.nn.Linear(2, 2)
    compiled = torch.compile(model, backend="eager")
    for _ in range(4):
        compiled(torch.ones(1, 2))
    assert len(ended) == 4
    assert type(model._forward_pre_hooks) is OrderedDict


def test_hooks_of_the_program_keep_working(calls: Steps, ended: list[int]) -> None:
    """The program may add them before the first call or between two calls, and ahead of its other hooks."""
    model, called = torch.nn.Linear(2, 2), []
    early = model.register_forward_pre_hook(lambda *_: called.append("early"))
    model(torch.ones(1, 2))
    late = model.register_forward_pre_hook(lambda *_: called.append("late"), prepend=True)
    model(torch.ones(1, 2))
    early.remove()
    late.remove()
    model(torch.ones(1, 2))
    assert (called, len(ended)) == (["early", "late", "early"], 3)


def test_hooks_of_the_program_outlive_ours(calls: Steps, ended: list[int]) -> None:
    model, called = torch.nn.Linear(2, 2), []
    model(torch.ones(1, 2))
    own = model.register_forward_pre_hook(lambda *_: called.append("own"))
    calls.close()
    model(torch.ones(1, 2))
    own.remove()
    model(torch.ones(1, 2))
    assert (called, len(ended)) == (["own"], 1)


def test_an_optimizer_that_steps_in_the_backward_pass_ends_no_step(ended: list[int]) -> None:
    steps = Steps("auto", lambda: ended.append(1))
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight])
    weight.register_post_accumulate_grad_hook(lambda _: optimizer.step())
    try:
        weight.sum().backward()
        assert (ended, steps.in_backward) == ([], True)
        for _ in torch.utils.data.DataLoader([1, 2, 3]):
            weight.sum().backward()
        # The last fetch, which finds no more batches, counts too.
        assert len(ended) == 4
    finally:
        steps.close()


def test_a_module_can_be_scripted_by_a_function_that_was_imported_before(calls: Steps, ended: list[int]) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model(torch.ones(1, 2))
    script(model)(torch.ones(1, 2))
    model(torch.ones(1, 2))
    assert len(ended) == 2


def test_calls_of_a_scripted_module_are_steps(calls: Steps, ended: list[int]) -> None:
    model = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    for _ in range(3):
        model(torch.ones(1, 2))
    assert len(ended) == 3
    calls.close()
    model(torch.ones(1, 2))
    assert len(ended) == 3


@pytest.mark.parametrize("called_before", [True, False], ids=["called before", "not called before"])
def test_a_module_can_be_traced_and_compiled(calls: Steps, ended: list[int], called_before: bool) -> None:
    model, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    if called_before:
        model(x)
    torch.jit.trace(model, x)
    torch.export.export(model, (x,), strict=True)
    counter = CompileCounter()
    whole = torch.compile(lambda given: model(given), backend=counter, fullgraph=True)
    # PyTorch calls a traced module once more, to compare the results.
    before = len(ended)
    whole(x)
    whole(x)
    assert (counter.frame_count, len(ended)) == (1, before)
    model(x)
    assert len(ended) == before + 1


def test_recording_may_end_in_a_step_after_which_the_program_runs_a_hook_of_its_own() -> None:
    steps = Steps("optimizer", lambda: steps.close())
    called: list[object] = []
    own = register_optimizer_step_post_hook(lambda *given: called.append(given))
    try:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
        optimizer.step()
        optimizer.step()
    finally:
        own.remove()
    assert len(called) == 2


def test_names_in_a_scripted_function_are_looked_up_where_it_is_defined(calls: Steps) -> None:
    torch.nn.Linear(2, 2)(torch.ones(1, 2))

    def double(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    @torch.jit.script
    def twice(x: torch.Tensor) -> torch.Tensor:
        return double(double(x))

    assert twice(torch.ones(1)).item() == 4


def test_a_loader_that_the_program_patched_stays_patched() -> None:
    original, fetched, ended = dataloader._BaseDataLoaderIter.__next__, [], []
    steps = Steps("loader", lambda: ended.append(1))
    below = dataloader._BaseDataLoaderIter.__next__

    def counted(loader: Any) -> Any:
        fetched.append(1)
        return below(loader)

    dataloader._BaseDataLoaderIter.__next__ = counted  # type: ignore[assignment, method-assign]
    try:
        next(iter(dataloader.DataLoader([1, 2])))  # type: ignore[arg-type]
        steps.close()
        next(iter(dataloader.DataLoader([1, 2])))  # type: ignore[arg-type]
        assert (len(fetched), len(ended)) == (2, 1)
    finally:
        dataloader._BaseDataLoaderIter.__next__ = original  # type: ignore[method-assign]


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
@pytest.mark.parametrize("during", [True, False], ids=["during the recording", "after it"])
def test_a_program_that_goes_on_after_a_signal_goes_on(during: bool) -> None:
    saved: list[int] = []
    watched = Endings(lambda: saved.append(1))
    before = signal.getsignal(signal.SIGUSR1)
    watched.watch()

    def chained(number: int, frame: FrameType | None) -> None:
        if callable(previous):
            previous(number, frame)

    previous = signal.signal(signal.SIGUSR1, chained)
    try:
        if not during:
            watched.release()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert saved == ([1] if during else [])
        assert signal.getsignal(signal.SIGUSR1) is chained
    finally:
        watched.release()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.skipif(sys.platform != "linux", reason="needs POSIX signals")
@pytest.mark.parametrize("registered", ["before", "during"])
def test_a_handler_that_native_code_sets_for_a_signal_stays(registered: str) -> None:
    code = f"""
import faulthandler, os, signal, sys
from perftool.integrations import endings
watched = endings.Endings(lambda: print("saved"))
if "{registered}" == "before":
    faulthandler.register(signal.SIGUSR1, all_threads=False)
watched.watch()
if "{registered}" == "during":
    faulthandler.register(signal.SIGUSR1, all_threads=False)
os.kill(os.getpid(), signal.SIGUSR1)
watched.release()
os.kill(os.getpid(), signal.SIGUSR1)
faulthandler.unregister(signal.SIGUSR1)
os.kill(os.getpid(), signal.SIGUSR1)
"""
    done = subprocess.run([*warm_python(), "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr.count("most recent call first")) == ("", 2)
    assert done.returncode == -signal.SIGUSR1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("during", [True, False], ids=["during the recording", "after it"])
def test_a_forked_child_keeps_the_programs_profile_function(during: bool) -> None:
    code = f"""
import os, sys
from perftool.integrations import endings
watched = endings.Endings(lambda: None)
watched.watch()
if not {during}:
    watched.release()
sys.setprofile(lambda *_: None)
child = os.fork()
if child == 0:
    os._exit(3 if sys.getprofile() else 4)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([*warm_python(), "-c", code]).returncode == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_records_no_stacks() -> None:
    code = """
import os, sys, torch
from perftool.integrations import endings
watched = endings.Endings(lambda: None)
watched.watch()
with torch.profiler.profile(with_stack=True):
    recorded = sys.getprofile()
    child = os.fork()
    if child == 0:
        os._exit(3 if recorded and not sys.getprofile() else 4)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
sys.exit(ended)
"""
    assert subprocess.run([*warm_python(), "-c", code]).returncode == 3


def test_a_disabled_profiler_of_the_program_does_not_end_the_recording(tmp_path: Path) -> None:
    code = """
import sys, torch
from perftool.integrations.record.plan import Plan
from perftool.integrations.record.recorder import Recorder
recorder = Recorder(Plan(sys.argv[1], sys.argv[1], steps_from="forward"))
for disabled in ((False,), ()):
    with torch.autograd.profiler.profile(*disabled, **({} if disabled else {"enabled": False})):
        pass
sys.exit(4 if recorder._over else 3)
"""
    assert subprocess.run([*warm_python(), "-c", code, str(tmp_path)]).returncode == 3


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the mask without setting it")
def test_saving_a_trace_does_not_set_the_mask_of_new_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    previous = os.umask(0o027)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "umask", None)
            with whole_file(tmp_path / "trace") as place:
                Path(place).touch()
    finally:
        os.umask(previous)
    assert (tmp_path / "trace").stat().st_mode & 0o777 == 0o640


def test_threads_that_train_at_once_record_one_of_them(tmp_path: Path) -> None:
    """The second thread takes a step while the profiler of the first thread starts up."""
    code = """
import sys, threading, torch
from perftool.integrations.activities import torch_profiler
from perftool.integrations.record.plan import Plan
from perftool.integrations.record.recorder import Recorder
recorder = Recorder(Plan(sys.argv[1], sys.argv[1], wait=1, warmup=1, active=2, steps_from="forward"))
stepped, used = torch_profiler.profile.step, set()
thread, waits = threading.Thread(target=lambda: waits.set() or model(torch.ones(1, 2))), threading.Event()
model = torch.nn.Linear(2, 2)

def step(profiler):
    used.add(threading.get_ident())
    if not waits.is_set():
        thread.start()
        waits.wait()
        thread.join(1)
    stepped(profiler)

torch_profiler.profile.step = step
for _ in range(7):
    model(torch.ones(1, 2))
thread.join()
sys.exit(0 if used == {threading.get_ident()} else 3)
"""
    assert subprocess.run([*warm_python(), "-c", code, str(tmp_path)], timeout=60).returncode == 0
    assert [note.stage for note in Plan("", str(tmp_path)).notes_left()][-1] == "saved"


def test_the_first_optimizer_is_noticed_once_and_the_class_is_as_before() -> None:
    made: list[str] = []
    before = Optimizer.__init__
    First(Optimizer, lambda: made.append("first"))
    assert inspect.signature(Optimizer.__init__) == inspect.signature(before)
    for _ in range(2):
        torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], 0.1)
    assert (made, Optimizer.__init__) == (["first"], before)
    First(Optimizer, lambda: made.append("second")).remove()
    assert Optimizer.__init__ is before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_is_forked_after_a_recording_can_record_itself() -> None:
    code = """
import os, sys, torch
from perftool.integrations import endings
watched = endings.Endings(lambda: None)
watched.watch()
child = os.fork()
if child == 0:
    with torch.autograd.profiler.profile() as recorded:
        torch.ones(1)
    os._exit(3 if recorded.function_events else 4)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([*warm_python(), "-c", code]).returncode == 3


@pytest.mark.parametrize("own", [True, False], ids=["own", "none"])
def test_a_program_keeps_its_own_python_profiler_and_the_recording_has_no_stacks(tmp_path: Path, own: bool) -> None:
    code = f"""
import sys, torch
from perftool.integrations.record.plan import Plan
from perftool.integrations.record.recorder import Recorder
recorder = Recorder(Plan(sys.argv[1], sys.argv[1], wait=0, warmup=1, active=2, steps_from="forward"))
if {own}:
    sys.setprofile(own := lambda *_: None)
model = torch.nn.Linear(2, 2)
for _ in range(6):
    model(torch.ones(1, 2))
    if {own}:
        assert sys.getprofile() is own
"""
    assert subprocess.run([*warm_python(), "-c", code, str(tmp_path)]).returncode == 0
    [note] = [note for note in Plan("", str(tmp_path)).notes_left() if note.stage == "saved"]
    assert ("it has no Python stacks, because the program uses its own Python profiler" in note.text) == own
    assert note.trace
    assert (b"python_function" in gzip.decompress(Path(note.trace).read_bytes())) != own


def test_a_program_finds_only_its_own_threads() -> None:
    before = threading.enumerate()
    watched = Endings(lambda: None)
    watched.watch()
    try:
        assert threading.enumerate() == before
    finally:
        watched.release()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the signals that a thread blocks")
def test_threads_of_the_recording_receive_no_signals(tmp_path: Path) -> None:
    """Otherwise, a program with one thread could not hold signals while it saves a checkpoint."""
    code = """
import os, signal, torch
from contextlib import suppress
torch.set_num_threads(1)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
blocking = []
for _ in range(11):
    model(torch.ones(2, 4)).sum().backward(); optimizer.step()
    for thread in set(os.listdir("/proc/self/task")) - {str(os.getpid())}:
        with suppress(OSError):
            [mask] = [line.split()[1] for line in open(f"/proc/self/task/{thread}/status") if line.startswith("SigBlk")]
            blocking.append(bool(int(mask, 16) >> signal.SIGTERM - 1 & 1))
print(len(blocking) > 0 and all(blocking))
"""
    assert run(tmp_path, code).stdout == "True\n"


@pytest.mark.skipif(not hasattr(signal, "SIGCHLD"), reason="needs POSIX signals")
def test_an_ignored_sigchld_keeps_the_exit_code_and_stays_ignored_in_the_program() -> None:
    code = """
import os, signal, sys
from perftool.commands.record import run_program
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
program = "import signal, sys; sys.exit(7 if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN else 8)"
ended = run_program([sys.executable, "-c", program], os.environ)
sys.exit(ended if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN else 9)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 7


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_program_may_wait_for_its_own_child() -> None:
    child = multiprocessing.get_context("fork").Process(target=os._exit, args=(3,))
    child.start()
    assert child.pid
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    watch = Watch(None)
    watch.begin()
    watch.end()
    assert os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1]) == 3
    child.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_after_a_recording_can_use_all_threads() -> None:
    """libgomp's threads do not survive a fork. A program whose ops were too small for threads has none."""
    code = """
import os, signal, sys, torch
torch.set_num_threads(2)
from perftool.integrations.machine import Watch
threads = os.listdir("/proc/self/task") if os.path.isdir("/proc/self/task") else []
assert "peaks" in Watch(None).facts() or torch.accelerator.is_available()
# A child that is forked while a thread exits may wait forever for a lock of MKL that the thread held.
assert not threads or os.listdir("/proc/self/task") == threads
child = os.fork()
if child == 0:
    signal.alarm(20)
    torch.ones(600, 600) @ torch.ones(600, 600)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([*warm_python(), "-c", code]).returncode == 0


def test_no_work_of_ours_is_in_the_log_of_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_VERBOSE", "1")
    assert "peaks" not in Watch(None).facts()


def test_the_modes_of_the_program_see_no_work_of_ours() -> None:
    class Seen(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    seen: list[object] = []
    with FlopCounterMode(display=False) as counter, Seen():
        found = Watch(None).facts()
    assert "peaks" in found or torch.accelerator.is_available()
    assert (counter.get_total_flops(), seen) == (0, [])


def test_the_execution_trace_of_the_program_has_no_work_of_ours(tmp_path: Path) -> None:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        torch.ones(300, 300) @ torch.ones(300, 300)
    recorded.export_chrome_trace(str(tmp_path / "trace.json"))
    observer = ExecutionTraceObserver().register_callback(str(tmp_path / "execution.json"))
    observer.start()
    torch.ones(1)
    found = Watch(None).facts(tmp_path / "trace.json")
    torch.zeros(1)
    observer.stop()
    observer.unregister_callback()
    assert found["ops"] or torch.accelerator.is_available()
    nodes = {node["name"] for node in json.loads((tmp_path / "execution.json").read_text())["nodes"]}
    assert nodes >= {"aten::ones", "aten::zeros"}
    assert not nodes & {"aten::mm", "aten::full"}


def own_profiler(folder: Path, *handler: str) -> subprocess.CompletedProcess[str]:
    code = OWN_PROFILER.format(handler="\n    ".join(handler))
    command = [*warm_python(), "-c", code, str(folder)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60)


def test_the_programs_own_trace_may_be_written_in_another_thread(tmp_path: Path) -> None:
    write = f"threading.Thread(target=lambda: profiler.export_chrome_trace({str(tmp_path / 'own.json')!r}))"
    done = own_profiler(tmp_path, f"saving = {write}", "saving.start()", "saving.join()")
    assert (done.returncode, done.stdout) == (0, "over\n")
    assert (tmp_path / "own.json").is_file()


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
@pytest.mark.parametrize("own", [True, False], ids=["written", "not yet written"])
def test_a_signal_ends_a_program_that_handles_its_own_trace(tmp_path: Path, own: bool) -> None:
    write = f"profiler.export_chrome_trace({str(tmp_path / 'own.json')!r})" if own else "pass"
    done = own_profiler(tmp_path, write, "os.kill(os.getpid(), signal.SIGTERM)", "print('handled', flush=True)")
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "")
    assert len([*tmp_path.glob("own.json"), *tmp_path.glob("*.pt.trace.json.gz")]) == 1


def test_a_handler_does_not_run_where_it_would_not_without_record(tmp_path: Path) -> None:
    code = OWN_PROFILER.format(handler="print('handled', flush=True)").replace("torch.ones(1)", "_ < 1 or os._exit(3)")
    done = subprocess.run([*warm_python(), "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert len(list(tmp_path.glob("*.pt.trace.json.gz"))) == 1


def test_warnings_of_the_program_are_shown_once() -> None:
    code = """
import warnings
from perftool.integrations.ignored_warnings import warnings_ignored
for _ in range(3):
    with warnings_ignored(module="torch.profiler"):
        warnings.warn_explicit("profiler", UserWarning, "profiler.py", 1, module="torch.profiler.profiler")
    warnings.warn("loss scale is low")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("loss scale is low"), "profiler.py" in done.stderr) == (0, 1, False)


UNUSUAL = """
import os, sys, torch

class Momentum(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})

    def step(self):
        for one in self.param_groups[0]["params"]:
            self.state[one] = torch.zeros_like(one)

print(os.read(int(sys.argv[1]), 9).decode(), "statistics" in sys.modules)
optimizer = Momentum([torch.nn.Parameter(torch.ones(2))])
for _ in range(4):
    optimizer.step()
with torch.autograd.profiler.emit_itt(enabled=False):
    optimizer.step()
torch.autograd.profiler.emit_itt()
for _ in range(4):
    optimizer.step()
import statistics
print(statistics.OWN)
"""


@pytest.mark.skipif(os.name == "nt", reason="needs inherited descriptors")
def test_a_program_keeps_its_descriptors_its_modules_its_optimizer_state_and_its_markers(tmp_path: Path) -> None:
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "train.py").write_text(UNUSUAL)
    for name in ("statistics", "resource"):
        (folder / f"{name}.py").write_text("OWN = True")
    read, write = os.pipe()
    os.write(write, b"inherited")
    record = ["record", "--no-report", "-o", str(tmp_path / "out"), "--wait", "0"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "perftool", *record, "--", str(folder / "train.py"), str(read)],
            pass_fds=[read], capture_output=True, text=True,
        )  # fmt: skip
    finally:
        os.close(read)
        os.close(write)
    assert (done.returncode, done.stdout) == (0, "inherited False\nTrue\n"), done.stderr
    assert len(list((tmp_path / "out").rglob("*.pt.trace.json.gz"))) == 1


@pytest.mark.skipif(os.name == "nt", reason="Windows has no wakeup descriptor for this")
def test_who_keeps_our_wakeup_descriptor_can_set_it_again() -> None:
    endings = Endings(lambda: None)
    endings.watch()
    read, write = os.pipe()
    os.set_blocking(write, False)
    ours = signal.set_wakeup_fd(write)
    try:
        endings.release()
        assert signal.set_wakeup_fd(ours) == write
    finally:
        signal.set_wakeup_fd(-1)
        os.close(read)
        os.close(write)


LIMITED = """
import os, signal, torch
class OutOfTime(Exception): pass
def out_of_time(number, frame): raise OutOfTime
signal.signal(signal.SIGUSR1, out_of_time)
signal.siginterrupt(signal.SIGUSR1, False)
save = torch.profiler.profile.export_chrome_trace
def slow(*args, **named):
    os.kill(os.getpid(), signal.SIGUSR1)
    return save(*args, **named)
torch.profiler.profile.export_chrome_trace = slow
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
steps = 0
try:
    while steps < 20:
        steps += 1
        model(torch.ones(2, 4)).sum().backward(); optimizer.step()
except OutOfTime:
    print("out of time in step", steps, signal.getsignal(signal.SIGUSR1) is out_of_time)
"""


def test_an_exception_of_the_programs_signal_handler_reaches_the_program_after_the_recording(tmp_path: Path) -> None:
    """A time limit that raises an exception used to be lost if its signal came while the trace was being saved."""
    done = run(tmp_path, LIMITED)

    assert (done.returncode, done.stdout) == (0, "out of time in step 8 True\n")
    assert "wrote perftool_record/" in done.stderr


STOPPED = """
import time, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(6):
    model(torch.ones(2, 4)).sum().backward(); optimizer.step()
def call(): return []
kept, until = [], time.time() + 20
while time.time() < until and not called():
    kept.append([bytearray(1 << 20), [call() for _ in range(1000)]])
print("evaluated")
"""


def test_a_recording_ends_if_the_steps_of_the_program_stop(tmp_path: Path) -> None:
    """Until the recording ends, PyTorch keeps every call in memory: 0.5 s of Python took 4 GB."""
    called = "called = lambda: bool(list(__import__('pathlib').Path('perftool_record').glob('*/*.trace.json*')))\n"
    done = run(tmp_path, called + STOPPED)

    assert (done.returncode, done.stdout) == (0, "evaluated\n")
    assert "; it ended early, because the program took no step for " in done.stderr
    assert "recording 3 steps took " in done.stderr


ENDED_BY = """
import os, signal, sys, time, torch
class OutOfTime(Exception): pass
def handle(number, frame): {handle}
{signal}
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(6):
    model(torch.ones(2, 4)).sum().backward(); optimizer.step()
save = torch.profiler.profile.export_chrome_trace
def slow(*args, **named):
    {send}
    return save(*args, **named)
torch.profiler.profile.export_chrome_trace = slow
def call(): return []
kept, until = [], time.time() + 100
try:
    while time.time() < until:
        kept = [bytearray(b"x") * (32 << 20), [call() for _ in range(1000)]]
    print("evaluated")
except OutOfTime as error:
    print("out of time", error)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize(
    ("handle", "number", "printed", "code"),
    [
        ("raise OutOfTime(number)", "SIGUSR1", "out of time 10\n", 0),
        ("sys.exit(143)", "SIGTERM", "", 143),
        ("", "SIGINT", "interrupted\n", 0),
    ],
)
def test_a_signal_reaches_the_program_if_it_comes_while_a_recording_ends_early(
    tmp_path: Path, handle: str, number: str, printed: str, code: int
) -> None:
    # A suite that runs in the background inherits that SIGINT is ignored.
    sets = f"signal.signal(signal.{number}, {'handle' if handle else 'signal.default_int_handler'})"
    sends = f"os.kill(os.getpid(), signal.{number})"
    done = run(tmp_path, ENDED_BY.format(handle=handle or "pass", signal=sets, send=sends), "--program-exit-code")

    assert (done.returncode, done.stdout) == (code, printed)
    assert "; it ended early, because the program took no step for " in done.stderr


def test_a_program_may_stop_when_its_recording_has_ended_early(tmp_path: Path) -> None:
    done = run(tmp_path, ENDED_BY.format(handle="pass", signal="", send="pass"), "--stop-after-recording")

    assert (done.returncode, done.stdout) == (0, "")
    assert "; it ended early, because the program took no step for " in done.stderr


TRACED = """
import time, torch
def call(): return []
class Slow(torch.nn.Module):
    def forward(self, x):
        until = time.time() + 2
        while time.time() < until and not self.training:
            self.kept = [bytearray(b"x") * (32 << 20), [call() for _ in range(1000)]]
            x = x + 1
        return x * 2
model = torch.nn.Sequential(torch.nn.Linear(4, 4), Slow())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(6):
    model(torch.ones(2, 4)).sum().backward(); optimizer.step()
torch.jit.trace(model.eval(), torch.ones(2, 4), check_trace=False)
print("traced")
"""


def test_a_recording_does_not_end_early_while_the_program_is_traced(tmp_path: Path) -> None:
    """Stopping the profiler is an op, which would become part of the traced graph: PyTorch crashed."""
    done = run(tmp_path, TRACED)

    assert (done.returncode, done.stdout) == (0, "traced\n")


COMPILED = """
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model.compile(backend="eager")
for step in range(12):
    if step == 1:
        torch.compiler.set_stance("fail_on_recompile")
    model(torch.ones(2, 4)).sum().backward(); optimizer.step()
torch.compiler.set_stance("default")
torch.compile(torch.nn.Linear(4, 4), backend="eager")(torch.ones(2, 4))
print("done")
"""


@pytest.mark.skipif(not hasattr(torch.compiler, "set_stance"), reason="needs stances of torch.compile")
def test_a_module_that_is_compiled_in_place_is_compiled_once(tmp_path: Path) -> None:
    """The compiled code depends on the number of global hooks, which the recorder used to change after a step."""
    done = run(tmp_path, COMPILED)

    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "global hooks" not in done.stderr
    assert "wrote perftool_record/" in done.stderr


COMPILED_STEP = """
import torch
from torch._dynamo import convert_frame
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
data = torch.utils.data.DataLoader(torch.ones(12, 4), 1)
compiled, convert = set(), convert_frame.ConvertFrame.__call__
def noticed(self, frame, *others, **named):
    compiled.add(frame.f_code.co_filename)
    return convert(self, frame, *others, **named)
convert_frame.ConvertFrame.__call__ = noticed
@torch.compile(backend="eager")
def train_step(batch):
    optimizer.zero_grad(); model(batch).sum().backward(); optimizer.step()
for step, batch in enumerate(data):
    if step == 2:
        torch.compiler.set_stance("fail_on_recompile")
    train_step(batch)
print(len(compiled) > 0, [file for file in compiled if "perftool" in file])
"""


@pytest.mark.skipif(not hasattr(torch.compiler, "set_stance"), reason="needs stances of torch.compile")
def test_the_recorder_is_not_compiled_with_a_step_of_the_program(tmp_path: Path) -> None:
    """PyTorch compiled about 340 functions of the recorder, with warnings, and its stance ended the recording."""
    done = run(tmp_path, COMPILED_STEP)

    assert (done.returncode, done.stdout) == (0, "True []\n")
    assert "UserWarning" not in done.stderr
    assert "recording 5 steps took" in done.stderr
    assert "wrote perftool_record/" in done.stderr


NO_THREADS = """
import _thread, torch

def refused(*arguments):
    raise RuntimeError("can't start new thread")

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(8):
    optimizer.zero_grad(); model(torch.ones(2, 4)).sum().backward(); optimizer.step()
    if step == 1:
        _thread.start_new_thread = refused
print("done")
"""


def test_a_program_goes_on_if_no_thread_can_be_started(tmp_path: Path) -> None:
    done = run(tmp_path, NO_THREADS)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


BROKEN = """
import os, sys
needed = "torch._subclasses.schema_check_mode"
sys.modules.pop(needed, None)
import torch
from perftool.integrations.record import recorder
print(needed in sys.modules, "encodings.ascii" in sys.modules, flush=True)

def refused(*arguments):
    raise LookupError("unknown encoding: ascii")

def train(broken_step, breaks):
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(8):
        if step == broken_step:
            breaks()
        optimizer.zero_grad(); model(torch.ones(2, 4)).sum().backward(); optimizer.step()
    print("done", torch.autograd._profiler_enabled(), sys.getprofile(), flush=True)

for case in (
    (0, lambda: sys.modules.update({needed: None})),
    (0, lambda: setattr(recorder.HomeThread, "move_here", refused)),
    (2, lambda: setattr(recorder, "Deadline", refused)),
    (2, lambda: setattr(recorder.LoaderWorkers, "begin", refused)),
):
    if os.fork() == 0:
        train(*case)
        os._exit(0)
    os.wait()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_program_goes_on_if_the_recorder_fails_in_its_step(tmp_path: Path) -> None:
    """Imports failed once a program had no free descriptors, another root, or no rights; so they come first."""
    done = run(tmp_path, BROKEN)
    assert (done.returncode, done.stdout) == (2, "True True\n" + 4 * "done False None\n"), done.stderr
    assert "nothing was recorded: the recording failed (" in done.stderr
    assert "Traceback" not in done.stderr


FILE_LIMIT = """
import gc, resource, signal, sys, torch
sys.dont_write_bytecode = True
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
for step in range(8):
    optimizer.zero_grad(); model(torch.ones(2, 4)).sum().backward(); optimizer.step()
gc.collect()
print("done", signal.SIGXFSZ in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""


@pytest.mark.skipif(not hasattr(signal, "sigtimedwait"), reason="needs signals of file sizes")
def test_a_program_with_a_limit_on_file_sizes_is_not_ended_by_our_files(tmp_path: Path) -> None:
    done = run(tmp_path, FILE_LIMIT, "--no-trials")
    assert (done.returncode, done.stdout) == (0, "done False\n"), done.stderr
    assert "the trace is truncated" in done.stderr
