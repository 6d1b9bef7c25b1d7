"""Runs a script like ``python SCRIPT ARGS``, inside a simulation."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import NoReturn

from perftool.errors import InputError
from perftool.fused.porting.script import without
from perftool.sim.own_stack import HERE
from perftool.sim.patches import attribute
from perftool.sim.session.simulation import Simulation

_TORCH_MODES = ("torch/overrides.py", "torch/utils/_python_dispatch.py", "torch/_ops.py")


class StepLimit(BaseException):
    """Ends a script after the requested number of steps; the script's ``except Exception`` does not catch it."""


def read_script(path: Path) -> CodeType:
    """Compile the script. Raise InputError if it cannot be read, and SyntaxError as Python does."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot read ({error.strerror or error})") from None
    return compile(source, str(path), "exec")


def run_script(simulation: Simulation, path: Path, args: Sequence[str]) -> tuple[int, str | None]:
    """Run the script, and return its exit code and, if it ended early, the reason.

    If the script forks, the child process ends here, because only the process that runs the simulation writes files.
    """
    ended = _ended(simulation, path, args)
    if os.getpid() != simulation.owner:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended[0])
    return ended


def _ended(simulation: Simulation, path: Path, args: Sequence[str]) -> tuple[int, str | None]:
    try:
        code = read_script(path)
        with _as_main(path, args) as namespace, simulation.running(), attribute(os, "_exit", _exit_of(simulation)):
            exec(code, namespace)
    except SystemExit as stop:
        return _exit_code(stop)
    except StepLimit as limit:
        return 0, str(limit)
    except KeyboardInterrupt:
        return 130, "the script was interrupted"
    except InputError:
        raise
    except BaseException as error:  # noqa: BLE001 - an error of the script, which Python would print
        # An error in the script only ends the recording.
        _show(error)
        return 1, f"the script raised {type(error).__name__}"
    return 0, None


def _exit_of(simulation: Simulation) -> Callable[[int], NoReturn]:
    """Return an ``os._exit`` that lets the simulation write its files."""
    leave = os._exit

    def end(status: int) -> NoReturn:
        if os.getpid() != simulation.owner:
            leave(status)
        raise SystemExit(status)

    return end


@contextmanager
def _as_main(path: Path, args: Sequence[str]) -> Iterator[dict[str, object]]:
    main = ModuleType("__main__")
    main.__file__ = str(path)
    main.__dict__["__builtins__"] = __builtins__
    before = sys.argv, sys.path[:], sys.modules["__main__"]
    folder = os.getcwd()
    sys.argv = [str(path), *args]
    sys.path[0] = str(path.resolve().parent)
    sys.modules["__main__"] = main
    try:
        yield main.__dict__
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = before
        # Our files are written to the original working directory, even if the script changed it.
        os.chdir(folder)


def _exit_code(stop: SystemExit) -> tuple[int, str | None]:
    if stop.code is None or stop.code == 0:
        return 0, None
    if isinstance(stop.code, int):
        return stop.code, f"the script ended with exit code {stop.code}"
    print(stop.code, file=sys.stderr)  # noqa: T201 - as Python does for a text
    return 1, "the script ended with exit code 1"


def _show(error: BaseException) -> None:
    """Print the traceback without our frames."""
    traceback.print_exception(type(error), error, without(error.__traceback__, _hidden))


def _hidden(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith(HERE) or file.endswith(_TORCH_MODES)
