"""How the process exits: with its exit code, after all exit handlers, and without tearing down the interpreter."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import duckdb
import pytest

from perftool import __main__, cli
from perftool.commands.ending import signals_as_interrupts
from perftool.errors import PerfToolError
from perftool.store.deadline import interrupted_after
from perftool.store.sandbox.sandbox import _killed_after


@pytest.mark.parametrize(
    ("raised", "left_with"),
    [
        (SystemExit(), [0]),
        (SystemExit(0), [0]),
        (SystemExit(143), [143]),
        (SystemExit("a sentence"), []),
        (KeyboardInterrupt(), []),
    ],
)
def test_the_code_is_that_of_the_program(
    raised: BaseException, left_with: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_exit: list[Callable[[], object]] = []
    codes: list[int] = []

    def main() -> None:
        assert len(at_exit) == 1, "what the program registers later is called before"
        raise raised

    monkeypatch.setattr(atexit, "register", lambda call, *given: at_exit.append(lambda: call(*given)))
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(cli, "main", main)
    with pytest.raises(type(raised)):
        __main__.program()
    for call in at_exit:
        call()
    assert codes == left_with


@pytest.mark.skipif(sys.platform == "win32", reason="no signal ends a process there")
def test_ctrl_c_during_the_imports_prints_no_traceback() -> None:
    code = (
        "import os, signal, sys\n"
        # A shell's background processes ignore SIGINT.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'perftool.cli': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from perftool.__main__ import program\n"
        "program()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


@pytest.mark.skipif(sys.platform == "win32", reason="signals of another process")
def test_ctrl_c_ends_the_program_while_it_waits_for_a_pipe() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "perftool", "analyze", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell's background processes ignore SIGINT, and this process would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        # This is more than a pipe can hold, so by the time all of it is written, the program has started reading.
        process.stdin.write(b'{"traceEvents": [' + b" " * (1 << 20))
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(60) == 130
        finally:
            process.kill()
        assert process.stderr.read() == b"habana_perf_tool: interrupted\n"


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_a_second_signal_does_not_disturb_the_removal_of_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with signals_as_interrupts() as ending:
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
            assert (ending.code, ending.word) == (130, "interrupted")
            # Once _UNWINDING_S has passed, a signal raises an exception again.
            monkeypatch.setattr("perftool.commands.ending._UNWINDING_S", 0)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
            assert (ending.code, ending.word) == (143, "terminated")
    finally:
        signal.signal(signal.SIGINT, before)


def test_no_time_limit_keeps_the_program_alive_when_it_is_interrupted() -> None:
    before = set(threading.enumerate())
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with interrupted_after(duckdb.connect(), 3600), _killed_after(child, 3600):
            started = set(threading.enumerate()) - before
            # Before it exits, Python waits for all threads that are not daemons.
            assert [thread.daemon for thread in started] == [True, True]
    finally:
        child.communicate(b"\n")


def test_a_time_limit_may_count_only_cpu_time() -> None:
    connection = duckdb.connect()
    with interrupted_after(connection, 0.2, lambda: 0.0):
        time.sleep(0.5)
        assert connection.execute("SELECT sum(range) FROM range(1000000)").fetchone()


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize(
    ("name", "word"), [("SIGTERM", "terminated"), ("SIGINT", "interrupted"), ("SIGHUP", "the terminal was closed")]
)
@pytest.mark.parametrize("wrapped", [ImportError("numpy failed"), PerfToolError("no"), SystemExit(2)], ids=repr)
def test_a_signal_wrapped_by_an_import_is_still_reported(
    wrapped: BaseException, name: str, word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    number = signal.Signals[name]

    def app() -> None:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            raise wrapped from None

    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setattr("sys.argv", ["habana_perf_tool", "analyze", "run.json"])
    # SIGHUP is ignored under nohup.
    before = signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(SystemExit) as ended:
            cli.main()
    finally:
        signal.signal(number, before)
    assert (ended.value.code, capsys.readouterr().err) == (128 + number, f"habana_perf_tool: {word}\n")


@pytest.mark.parametrize("error", [EOFError("why"), BrokenPipeError(32, "why")])
def test_internal_errors_do_not_exit_like_a_failed_gate(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Typer treats both errors as the user's wish to quit, and exits with 1."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("perftool.commands.session.Session.inputs", fail)
    monkeypatch.setattr("sys.argv", ["habana_perf_tool", "lint", "run.json"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said == f"habana_perf_tool: internal error: {type(error).__name__}: {error} (run with -v for a traceback)\n"


# Sends a signal the first time that DuckDB's native code calls Python while it is loaded.
_SIGNAL_WHILE_LOADING = """
import signal, sys
from importlib.machinery import ExtensionFileLoader
from perftool.commands.ending import signals_as_interrupts

loading, sent = ExtensionFileLoader.exec_module.__code__, []

def watch(frame, event, _):
    while event == "call" and not sent and (frame := frame.f_back):
        if frame.f_code is loading and "duckdb" in frame.f_locals["module"].__name__:
            sent.append(frame)
            try:
                signal.raise_signal(signal.SIGTERM)
                for _ in range(100):
                    # In the loop, Python checks for signals.
                    pass
            except KeyboardInterrupt:
                print("raised inside DuckDB")
                raise

try:
    with signals_as_interrupts() as ending:
        sys.setprofile(watch)
        import duckdb
        sys.setprofile(None)
        assert sent
        # The signal is raised again at this point, after the import.
        signal.pause()
except KeyboardInterrupt:
    print(ending.word)
    # Python remembers an interrupt raised inside exec(), as dataclasses use it, and would end by SIGINT.
    sys.exit(0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_a_signal_does_not_raise_while_duckdb_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", _SIGNAL_WHILE_LOADING], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "terminated\n"), done.stderr
