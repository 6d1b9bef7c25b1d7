"""Reads the command line and the environment of a server on this machine to find the folder for its profiles.

This works only on Linux and for processes of the same user; otherwise the user must name the folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_LISTENS = "0A"
_VARIABLES = ("VLLM_TORCH_PROFILER_DIR", "SGLANG_TORCH_PROFILER_DIR")
_DOTTED = re.compile(r"--profiler-config\.torch_profiler_dir(?:=(?P<value>.+))?$")


def profile_folder(port: int, proc: Path = _PROC) -> Path | None:
    """Find the profile folder of the process that listens on ``port``. Return None if it is unknown."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port, proc)}
    for process in proc.glob("[0-9]*"):
        with suppress(OSError):
            if sockets & {str(file.readlink()) for file in (process / "fd").iterdir()} and (
                found := _named_by(process)
            ):
                return found
    return None


def _listening(port: int, proc: Path) -> Iterator[str]:
    """Yield the inodes of the sockets that listen on ``port``."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def _named_by(process: Path) -> Path | None:
    words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    variables = (process / "environ").read_bytes().decode(errors="replace").split("\0")
    settings = dict(one.split("=", 1) for one in variables if "=" in one)
    named = _argument(words) or next((settings[name] for name in _VARIABLES if settings.get(name)), None)
    return None if named is None else (process / "cwd").readlink() / named


def _argument(words: list[str]) -> str | None:
    """Read the folder from ``--profiler-config JSON`` or ``--profiler-config.torch_profiler_dir FOLDER``."""
    for word, value in zip(words, [*words[1:], ""], strict=True):
        if dotted := _DOTTED.match(word):
            return dotted["value"] or value
        if word == "--profiler-config" or word.startswith("--profiler-config="):
            with suppress(ValueError, RecursionError):
                config = json.loads(word.partition("=")[2] or value)
                folder = config.get("torch_profiler_dir") if isinstance(config, dict) else None
                return folder if isinstance(folder, str) else None
    return None
