"""How the process ends: with its code, after all that is registered for the end, without taking itself apart."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from perftool import __main__, cli


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


@pytest.mark.skipif(sys.platform == "win32", reason="signals of another process")
def test_ctrl_c_ends_it_while_nothing_comes_from_a_pipe() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "perftool", "analyze", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # What a shell starts in the background ignores it, and so would this.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        # More than a pipe holds: once this is written, it reads.
        process.stdin.write(b'{"traceEvents": [' + b" " * (1 << 20))
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(60) == 130
        finally:
            process.kill()
        assert process.stderr.read() == b"habana_perf_tool: interrupted\n"
