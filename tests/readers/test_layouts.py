"""Folder layouts of several programs: which files belong to the run, and the rank of each file.

The file names are those of these programs: PyTorch's ``tensorboard_trace_handler``
(``HOST_PID.NANOSECONDS.pt.trace.json``, also ``.gz``), Lightning's profiler (stage and local rank before the time),
Accelerate (``profile_RANK.json``), DeepSpeed's tutorial (``trace_STEP.json``), and Composer, torchtune and torchtitan
(rank in the name, step in the name or in the folder).
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import pytest
from events import document, x

from perftool.engine.ranks.batch import number_files
from perftool.readers.discover import find_inputs

NS = 1_760_000_000_000_000_000
MINUTE = 60 * 10**9


@dataclass(frozen=True)
class Recorded:
    """A trace with the rank and world size that it states, its process, and the minute in which it was recorded."""

    rank: int | None = None
    world: int = 2
    process: int = 4000
    minute: int = 0

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata = {} if self.rank is None else {"distributedInfo": {"rank": self.rank, "world_size": self.world}}
        at = (NS + self.minute * MINUTE) / 1000
        content = document([x("nccl:all_reduce", at + 10 * call, 5, pid=self.process) for call in range(3)], **metadata)
        path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def handler(worker: str, minute: int = 0, end: str = "") -> str:
    return f"{worker}.{NS + minute * MINUTE}.pt.trace.json{end}"


def of_lightning(stage: str, local: int, minute: int = 0) -> str:
    return handler(
        f"{stage}-perf-{local}-[Strategy]DDPStrategy.{'training' if stage == 'fit' else 'validation'}_step", minute
    )


CASES = {
    "the TensorBoard handler, of two hosts": (
        {handler("a_900"): Recorded(2, 4), handler("a_1000"): Recorded(3, 4),
         handler("b_900", end=".gz"): Recorded(0, 4), handler("b_1000", end=".gz"): Recorded(1, 4)},
        {handler("a_900"): 2, handler("a_1000"): 3, handler("b_900", end=".gz"): 0, handler("b_1000", end=".gz"): 1},
    ),
    "the TensorBoard handler, without ranks": (
        {handler("a_1000"): Recorded(), handler("a_900"): Recorded(), handler("b_7"): Recorded()},
        {handler("a_900"): 0, handler("a_1000"): 1, handler("b_7"): 2},
    ),
    "the TensorBoard handler, repeat=2": (
        {handler(f"a_{pid}", minute): Recorded(rank, 2, pid, minute)
         for minute in (0, 9) for rank, pid in enumerate((70, 80))},
        {handler("a_70", 9): 0, handler("a_80", 9): 1},
    ),
    "Lightning, two hosts, with validation": (
        {f"node{host}/{of_lightning(stage, local)}": Recorded(2 * host + local, 4)
         for stage in ("fit", "validate") for host in range(2) for local in range(2)},
        {f"node{host}/{of_lightning('fit', local)}": 2 * host + local for host in range(2) for local in range(2)},
    ),
    "Lightning, one host that states no rank": (
        {of_lightning("fit", local): Recorded(process=4000 + local) for local in (1, 0, 2)},
        {of_lightning("fit", local): local for local in range(3)},
    ),
    "Accelerate, of which one rank is missing": (
        {f"profile_{rank}.json": Recorded(process=4000 + rank) for rank in (0, 2, 10)},
        {f"profile_{rank}.json": rank for rank in (0, 2, 10)},
    ),
    "the Trainer, beside what it saves": (
        {f"runs/{handler(f'a_{pid}')}": Recorded(rank, 2, pid) for rank, pid in enumerate((70, 80))},
        {f"runs/{handler('a_70')}": 0, f"runs/{handler('a_80')}": 1},
    ),
    "DeepSpeed, a trace every ten steps": (
        {f"trace_{step}.json": Recorded(0, 1, 4000, step) for step in (10, 20, 30)},
        {"trace_30.json": 0},
    ),
    "Composer, the rank and the batch": (
        {f"rank{rank}.{batch}.pt.trace.json": Recorded(rank, 2, 4000 + rank, batch)
         for rank in range(2) for batch in (5, 12)},
        {f"rank{rank}.12.pt.trace.json": rank for rank in range(2)},
    ),
    "torchtitan, a folder for each iteration": (
        {f"iteration_{step}/rank{rank}_trace.json": Recorded(rank, 2, 4000 + rank, step)
         for rank in range(2) for step in (10, 20)},
        {f"iteration_20/rank{rank}_trace.json": rank for rank in range(2)},
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_the_last_recording_of_each_rank_is_used(name: str) -> None:
    files, expected = CASES[name]
    for path, recorded in files.items():
        recorded.write(Path("out", path))
    # Files that Transformers saves next to its checkpoints.
    for path in ("trainer_state.json", "config.json", "checkpoint-9/generation_config.json"):
        Path("out", path).parent.mkdir(exist_ok=True)
        Path("out", path).write_text('{"log_history": [], "model_type": "bert", "transformers_version": "5.0"}')

    found = find_inputs(["out"])

    ranks = {
        Path(file.path).relative_to("out").as_posix(): file.rank for file in number_files(found.traces, found.set_aside)
    }
    # The rank of a single trace is found only when the trace is read.
    assert ranks == (expected if len(expected) > 1 else dict.fromkeys(expected))


def test_a_damaged_trace_is_not_taken_for_other_json() -> None:
    Recorded(0).write(Path("out/rank0.json"))
    Path("out/rank1.json").write_text('{"schemaVersion": 1, "distribu')
    assert find_inputs(["out"]).traces == ("out/rank0.json", "out/rank1.json")


def test_a_folder_without_traces_lists_no_skipped_files() -> None:
    Path("trainer_state.json").write_text('{"log_history": []}')
    assert find_inputs(["."]).traces == ("trainer_state.json",)
