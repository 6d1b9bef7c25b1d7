"""What to record, and how a program that is started learns of it. Imports no PyTorch: the command uses it too."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

StepsFrom = Literal["auto", "optimizer", "loader", "forward"]
STEPS_FROM: tuple[StepsFrom, ...] = get_args(StepsFrom)
VARIABLE = "PERFTOOL_RECORD"
_HOOK = Path(__file__).parent / "hook"


@dataclass(frozen=True)
class Plan:
    """What each process of the program does: skip ``wait`` steps after its first, switch the profiler on during
    ``warmup``, record ``active``, and write the trace into ``folder``.

    What it has to say goes into files in ``notes``: the output of the program stays its own.
    """

    folder: str
    notes: str
    wait: int = 1
    warmup: int = 1
    active: int = 3
    steps_from: StepsFrom = "auto"
    stacks: bool = True
    memory: bool = False
    stop_after: bool = False

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """The environment for the program: ``given``, this plan, and our hook first on the path of its modules."""
        path = os.pathsep.join(part for part in (str(_HOOK), given.get("PYTHONPATH", "")) if part)
        return {**given, "PYTHONPATH": path, VARIABLE: json.dumps(asdict(self))}

    def note(self, text: str) -> None:
        """Leave a sentence for whoever started the program."""
        (Path(self.notes) / f"{os.getpid()}.txt").write_text(text, encoding="utf-8")

    def notes_left(self) -> list[str]:
        """The sentences that the processes of the program left, each once."""
        files = sorted(Path(self.notes).glob("*.txt"))
        return list(dict.fromkeys(file.read_text(encoding="utf-8") for file in files))


def plan_here() -> Plan | None:
    """The plan that the environment of this process holds."""
    text = os.environ.get(VARIABLE)
    return Plan(**json.loads(text)) if text else None
