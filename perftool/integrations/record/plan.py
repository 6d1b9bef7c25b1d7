"""What to record, and how the started program learns of it. Imports no PyTorch, because the command uses it too."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

StepsFrom = Literal["auto", "optimizer", "loader", "forward"]
STEPS_FROM: tuple[StepsFrom, ...] = get_args(StepsFrom)
# Steps to skip, steps during which the profiler starts up, and steps to record: as many as `diff` needs.
WAIT, WARMUP, ACTIVE = 1, 1, 5
VARIABLE = "PERFTOOL_RECORD"
_HOOK = Path(__file__).parent / "hook"
# The stages of a process of the program, in order. ``stranger`` lacks this package, ``ready`` has imported PyTorch,
# ``recording`` has begun to record, and ``told`` gives a reason why it recorded nothing.
Stage = Literal["stranger", "ready", "recording", "told", "saved"]
STAGES: tuple[Stage, ...] = get_args(Stage)


@dataclass(frozen=True)
class Note:
    """A message from a process of the program: a sentence, and the trace that it saved."""

    stage: Stage
    text: str = ""
    trace: str | None = None


@dataclass(frozen=True)
class Plan:
    """The plan for each process of the program: skip ``wait`` steps after its first, start the profiler during
    ``warmup`` steps, record ``active`` steps, and write the trace into ``folder``. Its messages go to files in
    ``notes``, so that they do not mix with the program's output.
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

    @property
    def before(self) -> int:
        """The number of steps before the first recorded one."""
        return 1 + self.wait + self.warmup

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """The environment for the program: ``given``, this plan, and our hook first on the path of its modules."""
        path = os.pathsep.join(part for part in (str(_HOOK), given.get("PYTHONPATH", "")) if part)
        return {**given, "PYTHONPATH": path, VARIABLE: json.dumps(asdict(self))}

    def note(self, note: Note) -> None:
        """Leave ``note`` for the command that started the program, unless it is gone.

        A program that has become another user cannot leave any; it prints the reason why nothing was recorded itself.
        """
        try:
            written, name = tempfile.mkstemp(dir=self.notes)
            with open(written, "w", encoding="utf-8") as file:
                json.dump(asdict(note), file)
            os.replace(name, Path(self.notes) / f"{os.getpid()}-{note.stage}-{Path(name).name}.json")
        except PermissionError:
            if note.stage == "told":
                sys.stderr.write(f"habana_perf_tool: {note.text}\n")
        except OSError:
            pass

    def notes_left(self) -> list[Note]:
        """The notes of the program's processes, each once, in the order of the processes."""
        files = sorted(Path(self.notes).glob("*.json"))
        return list(dict.fromkeys(Note(**json.loads(file.read_text(encoding="utf-8"))) for file in files))


def plan_here() -> Plan | None:
    """The plan in the environment of this process."""
    text = os.environ.get(VARIABLE)
    return Plan(**json.loads(text)) if text else None
