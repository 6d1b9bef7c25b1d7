"""Runs commands of the tool in forks of a process that has already imported it, and prints what each one costs.

Importing takes as long as a small analysis. ``shapes.py`` starts this program. Each line of its input is a command; it
answers each with a line of JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from perftool.__main__ import program

_EMPTY = b'{"traceEvents": [{"ph": "X", "name": "aten::mm", "cat": "cpu_op", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]}'


def main() -> None:
    _import_what_an_analysis_imports()
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(_cost(order["command"], order["most_s"])), flush=True)


def _import_what_an_analysis_imports() -> None:
    """Run a trial analysis in a fork: if this process ran it, later forks would inherit a database that cannot work."""
    with tempfile.TemporaryDirectory() as folder:
        path, names = Path(folder) / "trace.json", Path(folder) / "modules"
        path.write_bytes(_EMPTY)

        def analyse() -> None:
            with suppress(SystemExit):
                _run(["analyze", "-q", str(path)])
            names.write_text("\n".join(name for name in sys.modules if name.startswith("perftool.")))

        with open(os.devnull, "wb") as nowhere:
            os.waitpid(_forked(analyse, nowhere), 0)
        for name in names.read_text().split():
            importlib.import_module(name)


def _cost(command: list[str], most_s: int) -> dict[str, Any]:
    """Return the CPU seconds, peak memory, exit code and output of ``command``."""

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (most_s, most_s))
        _run(command)

    with tempfile.TemporaryFile() as output:
        _, status, used = os.wait4(_forked(work, output), 0)
        output.seek(0)
        return {
            "cpu_s": used.ru_utime + used.ru_stime,
            "peak": used.ru_maxrss << 10,
            "code": os.waitstatus_to_exitcode(status),
            "output": output.read().decode(),
        }


def _run(command: list[str]) -> None:
    sys.argv[1:] = command
    program()


def _forked(work: Any, output: IO[bytes]) -> int:
    """Return the process id of a fork that does ``work``, writes to ``output`` and ends with the exit code of
    ``work``.
    """
    forked = os.fork()
    if forked:
        return forked
    code: Any = 70
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        work()
        code = 0
    except SystemExit as left:
        code = left.code or 0
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
