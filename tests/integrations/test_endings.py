"""How a recorder notices that its process is ending, and when it lets the process end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from warm_python import warm_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals of POSIX")

BEGIN = """
import ctypes, os, signal, sys, threading, time
from pathlib import Path
from perftool.integrations import endings
endings._PATIENCE_S = 0.5

def save():
    {saving}
    Path(sys.argv[1]).write_text("saved")

watched = endings.Endings(save)
watched.watch()

def stuck():
    # Locking twice blocks in native code, which no signal interrupts.
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(mutex)
"""
TERM = "os.kill(os.getpid(), signal.SIGTERM)"


def ended(folder: Path, saving: str, then: str) -> tuple[int, bool]:
    """The exit code of a process that ``Endings`` watches, and whether the process saved its recording."""
    place = folder / "saved"
    command = [*warm_python(), "-c", BEGIN.format(saving=saving) + then, str(place)]
    return subprocess.run(command, timeout=60, check=False).returncode, place.exists()


@pytest.mark.parametrize("then", ["1 / 0", "os._exit(3)", TERM])
def test_a_signal_while_a_recording_is_saved_waits(tmp_path: Path, then: str) -> None:
    assert ended(tmp_path, TERM, then) == (-signal.SIGTERM, True)


def test_a_handler_that_raises_does_not_keep_other_handlers_from_running(tmp_path: Path) -> None:
    then = """
class Stop(Exception):
    pass

def stop(number, frame):
    ran.append(number)
    raise Stop

ran, numbers = [], [signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM]
for number in numbers:
    signal.signal(number, stop)
for begin in [True, False, False, False, False]:
    try:
        if begin:
            with watched.undisturbed():
                for number in numbers:
                    os.kill(os.getpid(), number)
    except Stop:
        pass
os._exit(len(ran))
"""
    assert ended(tmp_path, "pass", then)[0] == 3


def test_a_main_thread_stuck_in_native_code_ends_by_its_signal(tmp_path: Path) -> None:
    assert ended(tmp_path, "pass", f"threading.Timer(0.1, lambda: {TERM}).start()\nstuck()") == (-signal.SIGTERM, False)


def test_a_slow_profiler_is_waited_for(tmp_path: Path) -> None:
    then = f"""
threading.Timer(0.1, lambda: {TERM}).start()
with watched.undisturbed():
    # Two seconds in native code, which no signal interrupts.
    mutex = ctypes.create_string_buffer(64)
    until = (ctypes.c_long * 2)(int(time.time()) + 2, 0)
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_timedlock(mutex, until)
"""
    assert ended(tmp_path, "pass", then) == (-signal.SIGTERM, True)


@pytest.mark.parametrize("handler", ["", "signal.signal(signal.SIGTERM, lambda *_: None)\n"], ids=["none", "its own"])
def test_a_delayed_signal_makes_the_recording_urgent(tmp_path: Path, handler: str) -> None:
    then = f"""{handler}
with watched.undisturbed():
    assert not watched.is_urgent
    {TERM}
    time.sleep(0.01)
    Path(sys.argv[1] + ".urgent").write_text(str(watched.is_urgent))
"""
    ended(tmp_path, "pass", then)
    assert (tmp_path / "saved.urgent").read_text() == "True"
