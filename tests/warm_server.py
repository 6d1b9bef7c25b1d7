"""Imports PyTorch, and runs each script that it receives in a fork. See ``warm_python``."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import select
import signal
import socket
import sys
import types
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec

import torch
import torch._dynamo

from perftool.integrations import op_speeds, peaks


class _Imported:
    """Finds PyTorch, and returns the module that is already loaded."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        places = list(torch.__path__)
        return importlib.util.spec_from_file_location(
            name, torch.__file__, loader=self, submodule_search_locations=places
        )

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return torch

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing, because PyTorch's code has already run."""


def serve(place: str) -> tuple[types.CodeType, types.ModuleType]:
    """Fork a child for each script. Only the children return, with the script's code and its module."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place)
        server.listen()
        print("ready", flush=True)
        # Once the input ends, nobody needs the server any more.
        while server in select.select([server, sys.stdin], [], [])[0]:
            caller, _ = server.accept()
            with caller:
                if os.fork() == 0:
                    server.close()
                    return _script_of(caller)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
    sys.exit()


def _script_of(caller: socket.socket) -> tuple[types.CodeType, types.ModuleType]:
    """Fork again. The parent waits, sends the exit code to ``caller`` and exits; only the child returns."""
    size, descriptors, _, _ = socket.recv_fds(caller, 8, 3)
    with caller.makefile("rb") as request:
        arguments, folder, environment, ignores = json.loads(request.read(int.from_bytes(size, "big")))
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with suppress(OSError):
            caller.sendall(b"%d\n" % code)
        os._exit(0)
    caller.close()
    # pytest-xdist's workers ignore SIGINT, and so does this server.
    signal.signal(signal.SIGINT, signal.SIG_IGN if ignores else signal.default_int_handler)
    for own, given in enumerate(descriptors):
        os.dup2(given, own)
        os.close(given)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    return _start(arguments)


def _start(arguments: Sequence[str]) -> tuple[types.CodeType, types.ModuleType]:
    """Do what Python does before it runs a script."""
    named = os.environ.get("PYTHONPATH", "")
    sys.path[:] = [*(named.split(os.pathsep) if named else ()), *sys.path[1:]]
    sys.meta_path.insert(0, _Imported())
    del sys.modules["torch"]
    sys.modules.pop("sitecustomize", None)
    with suppress(ModuleNotFoundError):
        import sitecustomize  # noqa: F401
    program = types.ModuleType("__main__")
    if arguments[0] == "-c":
        sys.argv, source, file = ["-c", *arguments[2:]], arguments[1].encode(), "<string>"
        sys.path.insert(0, "")
    elif arguments[0] == "-m":
        sys.argv, file = ["-m", *arguments[2:]], "<string>"
        source = f"import runpy; runpy.run_module({arguments[1]!r}, run_name='__main__', alter_sys=True)".encode()
        sys.path.insert(0, "")
    else:
        sys.argv, file = list(arguments), os.path.abspath(arguments[0])
        program.__file__ = file
        sys.path.insert(0, os.path.dirname(os.path.realpath(file)))
        with open(file, "rb") as script:
            source = script.read()
    sys.modules["__main__"] = program
    return compile(source, file, "exec", dont_inherit=True), program


# Recordings measure peaks and ops only briefly, which would take half of their time.
op_speeds._EACH_S = 0.0005
peaks._COPIED_BYTES, peaks._SIZES = 1 << 20, (64,)
peaks.measured_peaks.__defaults__ = (0.002, "cpu")
# The forks need not collect PyTorch's objects when they exit, which takes 0.7 s.
gc.freeze()
_code, _program = serve(sys.argv[1])
exec(_code, _program.__dict__)
