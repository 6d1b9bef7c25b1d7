"""Tries changes on the program's own models, in one step before the recording, in forked children of the program.

How much a change saves depends on the whole model: BF16 also needs casts, and a layout must suit all ops. So repeating
single ops shows too little. In a child, the model can run again without an effect on the program: the child has its own
memory, and all its files and connections lead to /dev/null.
"""

from __future__ import annotations

import _thread
import ctypes
import json
import mmap
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch.utils._pytree import tree_leaves

from perftool.integrations.call_lines import is_users, relative_path
from perftool.integrations.ignored_warnings import warnings_ignored
from perftool.integrations.record.plain_tensors import is_plain
from perftool.integrations.record.trial import Call, tried
from perftool.model.machine_memory import free_memory_mb
from perftool.model.recorded_on import LONGEST_PATH
from perftool.model.usage import resident_bytes

try:
    import resource
except ModuleNotFoundError:  # pragma: no cover - Windows, which cannot fork either
    resource = None  # type: ignore[assignment]

# The time for all trials, in s, and the share of what is left of it for one trial. If a model is slow, its trial takes
# up to _FIRST times as long, so that each change runs once.
_ALL_S, _SHARE, _FIRST = 20.0, 0.7, 2.0
# At most this many calls are tried.
_MOST_TRIED = 6
# A child that has not ended this long after its last run is stuck, for example in a lock that another thread held.
_LATE_S = 5.0
# The free memory that a child needs, as a multiple of the memory of the process.
_MEMORY = 1.5
_LONGEST_RESULT = 1 << 16
# More shared memory, in bytes, is not copied.
_MOST_SHARED = 1 << 30
# A flag of mmap on Linux, which Python does not name.
_MAP_FIXED = 0x10
# Libraries whose threads or connections do not survive a fork.
_UNSAFE = ("jax", "grpc", "mpi4py", "ray", "horovod", "tensorflow", "pyspark")
_FILES = "/proc/self/fd"


@dataclass
class Counted:
    """A call that counts as one of a trial: whether gradients were enabled, and whether a backward pass went through
    its results."""

    differentiated: bool
    backward: bool

    def use(self, *_: Any) -> None:
        """Handle a backward pass. Return None, so that its gradients stay as they are."""
        self.backward = True


@dataclass
class _Trial:
    """The times of one call to a model with each change, in ns: with its backward pass if it has one, and without."""

    path: str
    times: dict[str, Any]
    forward: dict[str, Any]
    errors: dict[str, Any]
    calls: list[Counted] = field(default_factory=list)

    def rows(self) -> Iterator[dict[str, Any]]:
        for backward in (True, False):
            if count := sum(call.backward == backward for call in self.calls):
                times = self.times if backward or not self.forward else self.forward
                yield {"path": self.path, "calls": count, "backward": backward, **times, **self.errors}


class Trials:
    """Tries changes on the calls to models (modules that are not inside another module) of one step."""

    def __init__(self) -> None:
        # By module and shapes of the inputs; None if the call could not be repeated.
        self._found: dict[tuple[Any, ...], _Trial | None] = {}
        # The last trial of each module.
        self._last: dict[tuple[Any, ...], _Trial | None] = {}
        self._left_s = _ALL_S
        # How long the trials took, in s.
        self.took_s = 0.0

    def add(self, path: str, call: Call, parameters: list[Any], buffers: list[Any]) -> Counted | None:
        """Try changes on a ``call`` that is about to begin, and count it. If the module was tried with inputs of the
        same shapes, only count it. After ``_MOST_TRIED`` trials, inputs of other shapes count as those of the module's
        last trial. ``parameters`` and ``buffers`` are those of the module, which does not count if it has no
        parameters.

        Return the counted call, which has a backward pass if gradients are enabled, until its results are watched."""
        if not parameters or len(path) > LONGEST_PATH:
            return None
        module = (path, id(call.module), call.differentiated)
        key = (*module, *map(_described, tree_leaves((call.args, call.kwargs))))
        if key not in self._found and self._may_try([*parameters, *buffers]):
            begin = time.monotonic()
            result: dict[str, Any] = {}
            # The system may refuse a fork.
            with suppress(OSError):
                result = self._tried(call)
            took_s = time.monotonic() - begin
            self.took_s += took_s
            self._left_s -= took_s
            self._found[key] = _trial(path, result) if result else None
            self._last[module] = self._found[key] or self._last.get(module)
        one = self._found.get(key, self._last.get(module))
        if one is None:
            return None
        one.calls.append(Counted(call.differentiated, call.differentiated))
        return one.calls[-1]

    def _may_try(self, states: list[Any]) -> bool:
        return len(self._found) < _MOST_TRIED and self._left_s > 0 and _is_possible(states)

    def found(self) -> list[dict[str, Any]]:
        """Return the calls that were tried: how many there were, whether they had a backward pass, and the times of one
        call, in ns, with each change."""
        return [row for one in self._found.values() if one for row in one.rows()]

    def stop_watching(self) -> None:
        """Assume a backward pass for each call with gradients, because further ones will not be seen."""
        for one in filter(None, self._found.values()):
            for call in one.calls:
                call.backward = call.differentiated

    def _tried(self, call: Call) -> dict[str, Any]:
        usual_s, limit_s = _SHARE * self._left_s, _FIRST * _SHARE * self._left_s
        begin = time.monotonic()
        until, latest = begin + usual_s, begin + limit_s
        line = _from_child(lambda: json.dumps(_in_thread(lambda: tried(call, until, latest))), limit_s)
        if time.monotonic() - begin > limit_s + _LATE_S:
            # Other calls would probably get stuck, too.
            self._left_s = 0
        result = json.loads(line) if line else {}
        return {**result, "error_line": _users_line(result.pop("error_lines", []))} if result else {}


def _trial(path: str, result: dict[str, Any]) -> _Trial:
    errors = {name: result[name] for name in ("failed", "error", "error_line")}
    times = {name: ns for name, ns in result.items() if name.endswith("_ns")}
    return _Trial(path, times, result["forward"], errors)


def _users_line(lines: list[tuple[str, int]]) -> str:
    """Return the first of ``lines`` that is in the user's own code. The copy of the program cannot find that out,
    because it cannot open files."""
    found = ((relative_path(file), line) for file, line in lines)
    return next((f"{file}:{line}" for file, line in found if is_users(file)), "")


def _described(value: Any) -> Hashable:
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.dtype, value.requires_grad
    return str(value) if type(value) in (bool, int, float, str) else type(value).__qualname__


def _is_possible(states: list[Any]) -> bool:
    """Whether a forked child can run a model with these parameters and buffers without an effect on the program."""
    # The copy would first have to copy shared memory, which takes time.
    if not all(is_plain(one) and not one.is_shared() for one in states):
        return False
    if not hasattr(os, "fork") or any(name in sys.modules for name in _UNSAFE) or torch.is_autocast_enabled("cpu"):
        return False
    if (
        torch.distributed.is_available()
        and torch.distributed.is_initialized()
        and torch.distributed.get_world_size() > 1
    ):
        return False
    # The program would learn of the child if it handles the ends of its children.
    if _is_of_program(signal.getsignal(signal.SIGCHLD)):
        return False
    return _MEMORY * (resident_bytes() or 0) < free_memory_mb() << 20


def _is_of_program(handler: Any) -> bool:
    """Whether the program has set this handler of a signal. PyTorch's handler calls the one that was set before it."""
    if not callable(handler) or isinstance(handler, signal.Handlers):
        return False
    inner = [cell.cell_contents for cell in getattr(handler, "__closure__", None) or ()]
    return not getattr(handler, "__module__", "").startswith("torch.") or any(map(_is_of_program, inner))


def _in_thread(compute: Callable[[], Any]) -> Any:
    """Compute in a new thread if PyTorch uses several threads: the threads that work for this one were not forked."""
    if torch.get_num_threads() == 1:
        return compute()
    differentiated, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    results: list[Any] = []
    ended = _thread.allocate_lock()

    def run() -> None:
        try:
            with torch.inference_mode(inference), torch.set_grad_enabled(differentiated):
                results.append(compute())
        finally:
            ended.release()

    ended.acquire()
    _thread.start_new_thread(run, ())
    ended.acquire()
    return results[0]


def _from_child(compute: Callable[[], str], limit_s: float) -> bytes:
    """The line that ``compute`` returns in a forked process. Empty if that process fails, or is still running a while
    after ``limit_s``."""
    source, target = os.pipe()
    process = 0
    try:
        process = _forked(target, compute, limit_s)
        os.close(target)
        target = -1
        return _line(source, time.monotonic() + limit_s + _LATE_S)
    finally:
        for one in {source, target} - {-1}:
            os.close(one)
        if process:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)


def _forked(target: int, compute: Callable[[], str], limit_s: float) -> int:
    """Start a process that writes the line that ``compute`` returns to ``target``, and return its number.

    The process is not a child of the program, which would be told of its end: a child of ours forks it, and exits.
    """
    numbers, number = os.pipe()
    try:
        # From Python 3.12 on, a fork in a program with threads causes a warning.
        with warnings_ignored(message="This process .* is multi-threaded"):
            child = os.fork()
        if child == 0:
            try:
                if process := os.fork():
                    os.write(number, f"{process}\n".encode())
                else:
                    _isolate(target, limit_s)
                    os.write(target, compute().encode() + b"\n")
            finally:
                # Nothing else of the program may run here: neither its handlers nor its destructors.
                os.kill(os.getpid(), signal.SIGKILL)
        # Another thread of the program may have collected the child.
        with suppress(OSError):
            os.waitpid(child, 0)
        os.close(number)
        number = -1
        return int(os.read(numbers, 20) or 0)
    finally:
        for one in {numbers, number} - {-1}:
            os.close(one)


def _line(source: int, until: float) -> bytes:
    """Read a line from a pipe. Empty if there is none by the time ``until``."""
    found = b""
    while not found.endswith(b"\n") and len(found) < _LONGEST_RESULT:
        ready, _, _ = select.select([source], [], [], max(0, until - time.monotonic()))
        part = os.read(source, _LONGEST_RESULT) if ready else b""
        if not part:
            return b""
        found += part
    return found


def _isolate(target: int, limit_s: float) -> None:
    """Cut a forked process off from the rest of the machine, and end it in time even if the program is gone."""
    for number in signal.valid_signals():
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.setitimer(signal.ITIMER_REAL, limit_s + _LATE_S)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for one in map(int, os.listdir(_FILES)):
        if one not in (target, nowhere):
            with suppress(OSError):
                os.dup2(nowhere, one)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _unshare_memory()
    # If memory runs out, the system ends this child rather than the program.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    # From here on, no file, connection or pipe to another process can be opened.
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


def _unshare_memory() -> None:
    """Replace the writable memory that this process shares with others by a copy of its own: values and locks of
    multiprocessing, tensors from loader workers, and mapped files. Raise ``MemoryError`` if it is large."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    spans = []
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        span, access, *_ = line.split()
        if access.startswith("rw") and access.endswith("s"):
            begin, end = (int(one, 16) for one in span.split("-"))
            spans.append((begin, end - begin))
    if sum(size for _, size in spans) > _MOST_SHARED:
        raise MemoryError
    for begin, size in spans:
        copied = ctypes.string_at(begin, size)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
        if libc.mmap(begin, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0) != begin:
            raise MemoryError
        ctypes.memmove(begin, copied, size)
