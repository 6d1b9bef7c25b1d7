"""Describes what to record. The plan is passed to the program through its environment. This module does not import
PyTorch, because the command line imports it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Literal, cast, get_args

from perftool.integrations.descriptors import Descriptor
from perftool.integrations.own_errors import OwnErrorsHidden
from perftool.integrations.own_threads import file_limit_raises
from perftool.readers.files.small_file import read_beginning

StepsFrom = Literal["auto", "optimizer", "loader", "forward"]
STEPS_FROM: tuple[StepsFrom, ...] = get_args(StepsFrom)
# Steps to skip, steps during which the profiler starts up, and steps to record. `diff` needs ACTIVE recorded steps.
WAIT, WARMUP, ACTIVE = 1, 1, 5
VARIABLE = "PERFTOOL_RECORD"
_HOOK = Path(__file__).parent / "hook"
# The stages of each process of the program, in order: ``stranger`` cannot import this package, ``ready`` has imported
# PyTorch, ``recording`` has started recording, ``explained`` has reported why it recorded nothing, and ``saved``
# has saved a trace.
Stage = Literal["stranger", "ready", "recording", "explained", "saved"]
STAGES: tuple[Stage, ...] = get_args(Stage)
# The end of the name of an empty file, which begins with the process that created an optimizer.
_HAS_OPTIMIZER = ".optimizer"
# Limits on the processes of a program and on the notes of a process, far above what occurs in practice.
_MOST_FILES, _MOST_NOTES = 100_000, 100_000
# Of a longer file of notes, only the beginning is read: about 5,000 notes.
_LONGEST_FILE = 1 << 20
# The text of the note about a trace that the program's own profiler wrote.
OWN_TRACE = "the program uses torch.profiler itself, so `record` does not record; the trace is the program's own"


@dataclass(frozen=True)
class Note:
    """A message from a process of the program, with the trace that it saved, if any."""

    stage: Stage
    text: str = ""
    trace: str | None = None


@dataclass(frozen=True)
class Plan:
    """The plan for each process of the program: skip ``wait`` steps after the first one, start the profiler during
    ``warmup`` steps, record ``active`` steps, and write the trace into ``folder``. The recorder's messages go to files
    in ``notes``, so that they do not mix with the program's output.
    """

    folder: str
    notes: str
    wait: int = WAIT
    warmup: int = WARMUP
    active: int = ACTIVE
    steps_from: StepsFrom = "auto"
    stacks: bool = True
    memory: bool = False
    stop_after: bool = False
    trials: bool = True

    @property
    def before(self) -> int:
        """The number of steps before the first recorded one."""
        return 1 + self.wait + self.warmup

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Build the environment of the program: ``base``, this plan, and a module path that begins with our hook."""
        path = os.pathsep.join(part for part in (str(_HOOK), base.get("PYTHONPATH", "")) if part)
        return {**base, "PYTHONPATH": path, VARIABLE: json.dumps(asdict(self))}

    def note(self, note: Note) -> None:
        """Write ``note`` for the command that started the program, unless that command has ended.

        The file is opened early, because a program may change its user or its root, or lower its limits. If the
        disk is full, a note that says why nothing was recorded is printed instead.
        """
        line = json.dumps(asdict(note)).encode() + b"\n"
        with OwnErrorsHidden(OSError), file_limit_raises():
            file = _own_file(self.notes)
            try:
                whole = os.write(file, line) == len(line)
            except OSError:
                whole = False
            if not whole and note.stage == "explained" and sys.stderr is not None:
                sys.stderr.write(f"habana_perf_tool: {note.text}\n")

    def optimizer_made(self) -> None:
        """Tell the other processes of the program that this one has an optimizer."""
        with OwnErrorsHidden(OSError):
            Path(self.notes, f"{os.getpid()}{_HAS_OPTIMIZER}").touch(mode=0o600)

    def only_others_train(self) -> bool:
        """Whether another process of the program has created an optimizer and still runs, and this one has created
        none."""
        with OwnErrorsHidden(OSError):
            files = islice(Path(self.notes).glob(f"*{_HAS_OPTIMIZER}"), _MOST_FILES)
            found = {file.name.removesuffix(_HAS_OPTIMIZER) for file in files}
            return str(os.getpid()) not in found and any(map(_is_running, found))
        return False

    def notes_left(self) -> list[Note]:
        """Read the distinct notes of the program's processes, in the order of their files.

        Skip anything that is not a whole note: the program may write to this folder, too, and a full disk truncates
        lines.
        """
        files = sorted(islice(Path(self.notes).glob("*.json"), _MOST_FILES))
        lines = dict.fromkeys(islice(chain.from_iterable(map(_whole_lines, files)), _MOST_NOTES))
        return list(dict.fromkeys(filter(None, map(_note, lines))))


def _is_running(process: str) -> bool:
    """Whether the process with this number is running. On Windows, assume so: asking would end it."""
    try:
        if os.name == "posix":
            os.kill(int(process), 0)
    except PermissionError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return True


def plan_here() -> Plan | None:
    """Read the plan from the environment of this process, if there is one."""
    text = os.environ.get(VARIABLE)
    return Plan(**json.loads(text)) if text else None


_files: dict[tuple[str, int], Descriptor] = {}


def _own_file(folder: str) -> int:
    """Open this process's file in ``folder``, once, and return its descriptor. Raise OSError on failure."""
    key = folder, os.getpid()
    number = _files[key].number if key in _files else None
    if number is None:
        place = os.path.join(folder, f"{os.getpid()}.json")
        _files[key] = Descriptor(os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
        number = _files[key].number
    if number is None:
        raise OSError(f"{folder}: closed immediately")
    return number


def _whole_lines(file: Path) -> Iterator[bytes]:
    """Yield the complete lines of ``file``; a process may still be writing the last one. Yield none if the file
    is a pipe, because none of our processes creates one."""
    with suppress(OSError):
        lines = read_beginning(file, _LONGEST_FILE).splitlines(keepends=True)
        yield from (line for line in lines if line.endswith(b"\n"))


def _note(line: bytes) -> Note | None:
    """Parse a line of a file of notes. Return None if it is not a note."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not found.keys() <= {"stage", "text", "trace"}:
        return None
    stage, text, trace = found.get("stage"), found.get("text", ""), found.get("trace")
    if stage not in STAGES or not isinstance(text, str) or not isinstance(trace, str | None):
        return None
    return Note(cast("Stage", stage), text, trace)
