"""The request to a worker process, which is a JSON argument, and the answer, which the worker writes to a JSON file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from perftool.model.benchmark import FormFigures, Ratio


@dataclass(frozen=True)
class Order:
    """Measure ``forms`` of the benchmark ``name`` at ``size``, then record them at the size ``traced``. If either size
    is None, skip the step that needs it.

    Only the naive and the advised form are recorded. ``folder`` gets the files of this benchmark: traces, results to
    compare, and the answer.
    """

    name: str
    forms: tuple[str, ...]
    device: str
    size: str | None
    traced: str | None
    rounds: int
    seconds: float
    folder: str
    rank: int = 0
    ranks: int = 1

    @property
    def answer(self) -> Path:
        """Where the worker writes its answer."""
        return Path(self.folder) / f"answer-{'-'.join(self.forms)}-{self.rank}.json"

    def trace(self, form: str) -> Path:
        """Return where this rank writes its trace of ``form``."""
        rank = f"-rank{self.rank}" if self.ranks > 1 else ""
        return Path(self.folder) / f"{self.name}-{form}{rank}.json.gz"

    def environment(self, form: str) -> Path:
        """Return the file for the environment variables of ``form``. Each form has its own folder, because a trace is
        read with the files next to it.
        """
        return Path(self.folder) / form / f"{self.name}.env"

    def result(self, form: str) -> Path:
        """Return the file with the result tensors of ``form``."""
        return Path(self.folder) / f"result-{form}.pt"

    @property
    def meeting(self) -> Path:
        """The file through which the ranks' processes find each other."""
        return Path(self.folder) / "meeting"

    def of_rank(self, rank: int) -> Order:
        """Return a copy of this order for the process with number ``rank``."""
        return replace(self, rank=rank)

    def as_text(self) -> str:
        """Return the order as a single command-line argument."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Answer:
    """The measurements of one process; ``seconds`` are the times of each form by round, and ``figures`` are a summary
    of each form. ``ratios`` are the first form's time divided by the time of each other form; ``step_ratio`` is the
    same for the recorded steps, timed without the profiler.
    """

    seconds: tuple[tuple[float, ...], ...] = ()
    figures: tuple[FormFigures, ...] = ()
    ratios: tuple[Ratio, ...] = ()
    step_ratio: Ratio | None = None
    bandwidth: float | None = None
    max_error: float = 0.0
    threads: int = 1
    clock: str = "cpu"


def order_from(text: str) -> Order:
    """Parse an order that ``as_text`` wrote."""
    fields: dict[str, Any] = json.loads(text)
    return Order(**{**fields, "forms": tuple(fields["forms"])})


def write_answer(answer: Answer, target: Path) -> None:
    """Write ``answer`` to the file ``target`` for ``read_answer``."""
    target.write_text(json.dumps(asdict(answer)), encoding="utf-8")


def read_answer(source: Path) -> Answer:
    """Read the answer that a worker wrote to ``source``."""
    fields: dict[str, Any] = json.loads(source.read_text(encoding="utf-8"))
    return Answer(
        seconds=tuple(tuple(rounds) for rounds in fields["seconds"]),
        figures=tuple(FormFigures(**form) for form in fields["figures"]),
        ratios=tuple(Ratio(**ratio) for ratio in fields["ratios"]),
        step_ratio=Ratio(**fields["step_ratio"]) if fields["step_ratio"] else None,
        bandwidth=fields["bandwidth"],
        max_error=fields["max_error"],
        threads=fields["threads"],
        clock=fields["clock"],
    )
