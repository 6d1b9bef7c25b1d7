"""Measures the machine during the recorded steps: its cores, which processes used them, and how long threads waited for
a core. The trace stores the result as a JSON object, which docs/recording.md describes and
``perftool/store/machines.py`` reads.
"""

from __future__ import annotations

import _thread
import gc
import multiprocessing.process
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from perftool.integrations.activities import ProfilerAction
from perftool.integrations.op_speeds import op_speeds
from perftool.integrations.own_threads import start_thread
from perftool.integrations.peaks import Peaks, measured_peaks
from perftool.model.processors import cores_allowed, cores_quota, instruction_sets, processor_name
from perftool.model.usage import page_bytes, page_faults, resident_bytes, system_ns

VERSION = 1
# At most this many threads are listed: those that waited longest.
_MOST_THREADS = 64
# The step time without the profiler is computed from this many steps right before the recording.
_FEWEST_QUIET, _MOST_QUIET = 3, 5
# Settings that change how libraries use the processor and the memory.
_LIMITS = (
    "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "OMP_NUM_THREADS",
    "MKL_NUM_THREADS", "KMP_AFFINITY", "GOMP_CPU_AFFINITY", "OMP_PROC_BIND", "LD_PRELOAD",
)  # fmt: skip
# Settings that make libraries print a line for each matmul, including ours.
_VERBOSE = ("ONEDNN_VERBOSE", "DNNL_VERBOSE", "MKL_VERBOSE")
_TASKS = Path("/proc/self/task")
# How often to check whether the measuring thread has ended, in s.
_POLL_S = 0.01
# The name of the threads that measure: at most 15 characters. Once they have returned, they exit within milliseconds,
# or later on a loaded machine.
_THREAD_NAME, _LONGEST_EXIT_S = "perftool-speeds", 5
_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
Schedule = Callable[[int], ProfilerAction]


@dataclass(frozen=True)
class _Usage:
    """Usage of a thread or process since its start, in ns: time running on a core, and time waiting for one."""

    name: str
    cpu_ns: int
    delay_ns: int


@dataclass(frozen=True)
class _Process:
    """What this process used until ``at_ns``: CPU time, the part of it in the kernel, page faults, and memory."""

    at_ns: int
    cpu_ns: int
    system_ns: int | None
    page_faults: int | None
    resident_bytes: int | None


@dataclass(frozen=True)
class _Moment:
    """Usage up to a moment: by this process, its threads and its worker processes, of the allowed cores (``busy_ns``,
    ``stolen_ns``), and of the machine.
    """

    process: _Process
    threads: Mapping[int, _Usage]
    workers: Mapping[int, _Usage]
    busy_ns: int | None
    stolen_ns: int | None
    pressure_ns: int | None
    load: float | None


class Watch:
    """Measures from the first recorded step to the last. The profiler calls ``schedule`` when a step begins.

    Errors are suppressed, because the measurement must not disturb the program or the recording. ``is_urgent`` returns
    true once the program is about to end; after that, no further op is run to measure its speed.
    """

    def __init__(self, usual: Schedule | None) -> None:
        self.is_urgent: Callable[[], bool] = lambda: False
        # How long it took to measure the machine's peaks and the ops.
        self.measuring_ns = 0
        self._usual = usual
        self._begin: _Moment | None = None
        self._measured: tuple[Peaks, list[dict[str, Any]]] | None = None
        self._window: tuple[_Moment, _Moment] | None = None
        self._last_ns: int | None = None
        self._action: ProfilerAction | None = None
        self._quiet_steps: list[int] = []
        # What the process had used at the beginning and the end of each of the last consecutive steps without the
        # profiler.
        self._quiet: list[_Process] = []
        self._mark: _Process | None = None
        self._steps: list[int] = []

    def schedule(self, step: int) -> ProfilerAction:
        """Return the action of the wrapped schedule for ``step``, which begins now."""
        assert self._usual is not None
        action = self._usual(step)
        with suppress(Exception):
            self._step_begins(action)
        return action

    def end(self) -> None:
        """Note the usage after the last recorded step; does nothing if no measurement is running."""
        with suppress(Exception):
            if self._begin is not None:
                self._window, self._begin = (self._begin, _now()), None

    def begin(self) -> None:
        """Note the usage before the first recorded step, and discard any earlier measurement."""
        with suppress(Exception):
            self._begin, self._steps = _now(), []

    @property
    def usual_step_ns(self) -> int | None:
        """The median time of the last steps without the profiler, or None if there were too few. Earlier steps are not
        used, because the first steps of a run are slow."""
        last = self._quiet_steps[-_MOST_QUIET:]
        return round(median(last)) if len(last) >= _FEWEST_QUIET else None

    @property
    def recorded_ns(self) -> int | None:
        """How long the recorded steps took in total, or None if they have not ended."""
        return None if self._window is None else self._window[1].process.at_ns - self._window[0].process.at_ns

    def facts(self, trace: Path | None = None) -> dict[str, Any]:
        """Return the object for ``trace``, a file that is still uncompressed. Values that this system does not report
        are None."""
        self.end()
        allowed = cores_allowed()
        found: dict[str, Any] = {
            "version": VERSION,
            "steps": {
                "recorded": len(self._steps),
                "recorded_ns": round(median(self._steps)) if self._steps else None,
                "before_ns": self.usual_step_ns,
            },
            "machine": {
                "processor": processor_name(),
                "instruction_sets": instruction_sets(),
                "cores": os.cpu_count(),
                "cores_allowed": None if allowed is None else len(allowed),
                "cores_quota": cores_quota(),
            },
            "process": {
                "torch": str(torch.__version__),
                "threads": torch.get_num_threads(),
                "interop_threads": torch.get_num_interop_threads(),
                "loader_workers": _loader_workers(),
                "limits": {name: os.environ[name] for name in _LIMITS if name in os.environ},
            },
        }
        if self._window is not None:
            found["window"] = _used_between(*self._window)
        if len(self._quiet) > 1:
            found["quiet"] = {"steps": len(self._quiet) - 1, **_process_between(self._quiet[0], self._quiet[-1])}
        # If there is an accelerator, the CPU's peaks do not matter.
        if not torch.accelerator.is_available() and not any(os.environ.get(name, "0") != "0" for name in _VERBOSE):
            with suppress(Exception):
                begin = time.monotonic_ns()
                # Later recordings of the same program get the same values.
                peaks, speeds = self._measured = self._measured or _measured(trace, self.is_urgent)
                self.measuring_ns = time.monotonic_ns() - begin
                found["peaks"] = {"products": dict(peaks.products), "memory_bandwidth": peaks.memory_bandwidth}
                found["ops"] = speeds
        return found

    def _step_begins(self, action: ProfilerAction) -> None:
        now = time.monotonic_ns()
        last, self._mark = self._mark, _process() if ProfilerAction.NONE in (self._action, action) else None
        if self._action == ProfilerAction.NONE and last and self._mark:
            # There may have been a recording between two quiet steps.
            before = self._quiet[-_MOST_QUIET:] if self._quiet and self._quiet[-1] is last else [last]
            self._quiet = [*before, self._mark]
        was, recording = self._action in _RECORDING, action in _RECORDING
        whole = self._action == ProfilerAction.RECORD_AND_SAVE
        if self._last_ns is not None and self._action != ProfilerAction.WARMUP:
            # Warm-up steps are left out, because the profiler starts during them and makes them longer.
            (self._steps if was else self._quiet_steps).append(now - self._last_ns)
        if was and (whole or not recording):
            self.end()
        if recording and (whole or not was):
            self.begin()
        self._action, self._last_ns = action, time.monotonic_ns()


def _measured(trace: Path | None, is_urgent: Callable[[], bool]) -> tuple[Peaks, list[dict[str, Any]]]:
    """Measure the peaks of the machine and the speeds of the ops of ``trace``, in a separate thread.

    libgomp keeps a pool of threads for each thread that runs parallel ops. A child that is forked by a thread with such
    a pool hangs in its first parallel op, so the program's own threads must not get a pool from us. Nor may the program
    fork while a thread of ours exits, because that thread takes one of MKL's locks to free its memory. Python's profile
    functions do not see a thread that ``_thread`` starts. If an exception such as KeyboardInterrupt reaches this
    thread, it first waits for the measuring thread, which would crash if Python ended while it computes.
    """
    ended = _thread.allocate_lock()
    stopped: list[bool] = []
    results: list[tuple[Peaks, list[dict[str, Any]]]] = []

    def measure() -> None:
        peaks, speeds = Peaks({}, None), []
        try:
            with suppress(Exception):
                # The threads that this one starts inherit its name.
                Path("/proc/thread-self/comm").write_text(_THREAD_NAME, encoding="ascii")
            with suppress(Exception):
                peaks = measured_peaks()
                # Without instructions for BF16, a processor only emulates it.
                bf16 = peaks.products.get("bf16", 0) > peaks.products.get("fp32", 0)
                speeds = op_speeds(trace, bf16=bf16, is_over=lambda: bool(stopped) or is_urgent()) if trace else []
        finally:
            # The program waits for the results and for the lock, however the thread ends.
            results.append((peaks, speeds))
            ended.release()

    ended.acquire()
    start_thread(measure)
    try:
        ended.acquire()
        _wait_for_exits()
    except BaseException:
        stopped.append(True)
        while not results:
            with suppress(BaseException):
                time.sleep(_POLL_S)
        raise
    return results[0]


def _wait_for_exits() -> None:
    """Wait until the system has removed the threads that measured."""
    until = time.monotonic() + _LONGEST_EXIT_S
    while time.monotonic() < until and _THREAD_NAME in _thread_names():
        time.sleep(_POLL_S)


def _thread_names() -> Iterator[str]:
    """Yield the names of this process's threads; none if the system does not list them."""
    with suppress(OSError):
        for tid in os.listdir(_TASKS):
            with suppress(OSError):
                yield _name(_TASKS / tid)


def _process_between(begin: _Process, end: _Process) -> dict[str, Any]:
    return {
        "wall_ns": end.at_ns - begin.at_ns,
        "cpu_ns": end.cpu_ns - begin.cpu_ns,
        "system_ns": _difference(begin.system_ns, end.system_ns),
        "page_faults": _difference(begin.page_faults, end.page_faults),
        "page_bytes": page_bytes(),
        "grown_bytes": _difference(begin.resident_bytes, end.resident_bytes),
    }


def _used_between(begin: _Moment, end: _Moment) -> dict[str, Any]:
    threads = _differences(begin.threads, end.threads)
    workers = _differences(begin.workers, end.workers)
    return {
        **_process_between(begin.process, end.process),
        "workers_cpu_ns": sum(one["cpu_ns"] for one in workers) if workers else 0,
        "machine_cpu_ns": _difference(begin.busy_ns, end.busy_ns),
        "stolen_ns": _difference(begin.stolen_ns, end.stolen_ns),
        "pressure_ns": _difference(begin.pressure_ns, end.pressure_ns),
        "load_before": begin.load,
        "load_after": end.load,
        "threads": sorted(threads, key=lambda one: (-one["delay_ns"], one["tid"]))[:_MOST_THREADS],
        "workers": sorted(workers, key=lambda one: (-one["delay_ns"], one["tid"]))[:_MOST_THREADS],
    }


def _differences(begin: Mapping[int, _Usage], end: Mapping[int, _Usage]) -> list[dict[str, Any]]:
    """Return the usage of each thread or process in ``end`` since ``begin``. New ones count from zero."""
    found = []
    for tid, used in end.items():
        before = begin.get(tid, _Usage("", 0, 0))
        cpu, delay = used.cpu_ns - before.cpu_ns, used.delay_ns - before.delay_ns
        if cpu or delay:
            found.append({"tid": tid, "name": used.name, "cpu_ns": cpu, "delay_ns": delay})
    return found


def _difference(begin: int | None, end: int | None) -> int | None:
    return None if begin is None or end is None else end - begin


def _now() -> _Moment:
    # ``active_children`` would collect the exit codes of children that have ended, but the program may need these codes
    # itself.
    pids = [child.pid for child in set(multiprocessing.process._children) if child.pid]  # type: ignore[attr-defined]
    busy, stolen = _machine()
    return _Moment(
        process=_process(),
        threads=dict(_used(_TASKS, None)),
        workers=dict(_used(Path("/proc"), pids)),
        busy_ns=busy,
        stolen_ns=stolen,
        pressure_ns=_pressure(),
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    )


def _process() -> _Process:
    return _Process(time.monotonic_ns(), time.process_time_ns(), system_ns(), page_faults(), resident_bytes())


def _used(folder: Path, chosen: list[int] | None) -> Iterator[tuple[int, _Usage]]:
    """Yield the usage of the threads or processes in ``folder``, except those that end during the call."""
    with suppress(OSError):
        for tid in os.listdir(folder) if chosen is None else map(str, chosen):
            with suppress(OSError, ValueError):
                cpu, delay, _ = (folder / tid / "schedstat").read_text(encoding="ascii").split()
                yield int(tid), _Usage(_name(folder / tid), int(cpu), int(delay))


def _name(task: Path) -> str:
    """Return the name of the thread or process whose folder in /proc is ``task``."""
    return (task / "comm").read_text(encoding="utf-8", errors="replace").strip()


def _machine() -> tuple[int | None, int | None]:
    """Return how long the allowed cores were busy, with any process, and how long a hypervisor withheld them, in ns."""
    allowed = cores_allowed()
    if allowed is None:
        return None, None
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return None, None
    tick = 10**9 // os.sysconf("SC_CLK_TCK")
    busy = stolen = 0
    for line in lines:
        name, *numbers = line.split()
        if name[:3] == "cpu" and name[3:].isdecimal() and int(name[3:]) in allowed:
            user, nice, system, _, _, hard, soft, steal = map(int, numbers[:8])
            busy += tick * (user + nice + system + hard + soft)
            stolen += tick * steal
    return busy, stolen


def _pressure() -> int | None:
    """Return how long, in ns, at least one thread of the machine waited for a core."""
    with suppress(OSError, ValueError, LookupError):
        some = Path("/proc/pressure/cpu").read_text(encoding="ascii").splitlines()[0]
        return 1000 * int(some.rpartition("total=")[2])
    return None


def _loader_workers() -> int | None:
    """Return the largest number of workers of any data loader, or None if there is no loader."""
    found = [one for one in gc.get_objects() if issubclass(type(one), (DataLoader, _BaseDataLoaderIter))]
    return max((getattr(one, "num_workers", getattr(one, "_num_workers", 0)) for one in found), default=None)
