"""Folders that keep the recordings of several runs give the newest one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perftool.readers.files.discover import find_inputs

T = 1_729_284_340_533_778_439
MINUTE = 60_000_000_000


def save(folder: Path, name: str, rank: int | None = None, ranks: int = 2) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    told = {} if rank is None else {"distributedInfo": {"backend": "hccl", "rank": rank, "world_size": ranks}}
    path.write_text(json.dumps({**told, "traceEvents": [{"ph": "X"}]}))


def handler(worker: str, at: int) -> str:
    return f"{worker}.{at}.pt.trace.json"


@pytest.mark.parametrize(
    ("files", "newest"),
    [
        pytest.param(
            {handler("host_10", T): None, handler("host_11", T + 5 * MINUTE): None},
            [handler("host_11", T + 5 * MINUTE)],
            id="two runs of one process",
        ),
        pytest.param(
            {handler("host_10", T): None, handler("host_10", T + 1): None},
            [handler("host_10", T + 1)],
            id="one process that recorded twice",
        ),
        pytest.param(
            {handler("host_10", T): None, handler("host_11", T + 1): None},
            [handler("host_10", T), handler("host_11", T + 1)],
            id="two processes at the same time that tell no rank",
        ),
        pytest.param(
            {handler("host_10", T): 0, handler("host_11", T + 9 * MINUTE): 1},
            [handler("host_10", T), handler("host_11", T + 9 * MINUTE)],
            id="two ranks, however far apart they saved",
        ),
        pytest.param(
            {handler("a_1", T): 0, handler("a_2", T + 1): 1, handler("b_1", T + 2): 1, handler("b_2", T + 3): 0},
            [handler("b_1", T + 2), handler("b_2", T + 3)],
            id="two runs of two ranks",
        ),
        pytest.param(
            {handler("host_10", T // 1_000_000): None, handler("host_11", T - 5 * MINUTE): None},
            [handler("host_10", T // 1_000_000)],
            id="a time in ms, one in ns",
        ),
        pytest.param(
            {"plugins/profile/2026_01_02_10_00_00/host.pt.trace.json": None,
             "plugins/profile/2026_01_02_09_00_00/host.pt.trace.json": None},
            ["plugins/profile/2026_01_02_10_00_00/host.pt.trace.json"],
            id="run folders of TensorBoard",
        ),
        pytest.param(
            {f"train/{handler('host_10', T)}": None, f"generate/{handler('host_10', T + 1)}": None},
            [f"generate/{handler('host_10', T + 1)}"],
            id="named folders of hpu_profile",
        ),
        pytest.param(
            {f"rank0/{handler('host_10', T)}": None, f"rank1/{handler('host_11', T + 9 * MINUTE)}": None},
            [f"rank0/{handler('host_10', T)}", f"rank1/{handler('host_11', T + 9 * MINUTE)}"],
            id="a folder for each rank",
        ),
        pytest.param(
            {handler("fit-[Strategy]SingleDeviceStrategy.training_step", T): None,
             handler("fit-[Strategy]SingleDeviceStrategy.validation_step", T + 1): None},
            [handler("fit-[Strategy]SingleDeviceStrategy.training_step", T)],
            id="training before the validation of Lightning",
        ),
        pytest.param(
            {handler("fit-perf-0-[Strategy]DDPStrategy.training_step", T): None,
             handler("fit-perf-1-[Strategy]DDPStrategy.training_step", T + 2 * MINUTE): None},
            [handler("fit-perf-0-[Strategy]DDPStrategy.training_step", T),
             handler("fit-perf-1-[Strategy]DDPStrategy.training_step", T + 2 * MINUTE)],
            id="the ranks of Lightning",
        ),
    ],
)  # fmt: skip
def test_the_newest_run_is_taken(tmp_path: Path, files: dict[str, int | None], newest: list[str]) -> None:
    for name, rank in files.items():
        save(tmp_path, name, rank)

    found = find_inputs([str(tmp_path)])

    assert sorted(Path(path).relative_to(tmp_path).as_posix() for path in found.traces) == sorted(newest)
    assert bool(found.notes) == (len(newest) < len(files))


def test_a_run_with_another_number_of_ranks_is_another_run(tmp_path: Path) -> None:
    for rank in range(4):
        save(tmp_path, handler(f"a_{rank}", T + rank), rank, ranks=4)
    for rank in range(2):
        save(tmp_path, handler(f"b_{rank}", T + 10 + rank), rank, ranks=2)

    assert [Path(path).name[:3] for path in find_inputs([str(tmp_path)]).traces] == ["b_0", "b_1"]


def test_the_note_names_what_was_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for at in (T, T + MINUTE):
        save(tmp_path / "logs", handler("host_1", at))

    assert find_inputs(["logs"]).notes == (
        f"logs holds 2 recordings; analysing the newest: logs/host_1.{T + MINUTE}.pt.trace.json. "
        "To see another, name its files.",
    )


def test_files_that_are_named_are_all_taken(tmp_path: Path) -> None:
    for at in (T, T + MINUTE):
        save(tmp_path, handler("host_1", at))

    assert len(find_inputs([str(tmp_path / "*.json")]).traces) == 2


def test_logs_of_the_other_runs_and_json_of_other_programs_are_left_out(tmp_path: Path) -> None:
    log = "Frequency of op and op name that were executed on CPU:\n3\taten::digamma\n"
    for at, name in ((T, "old"), (T + 1, "new")):
        save(tmp_path / name, handler("host_1", at))
        (tmp_path / name / "console.log").write_text(log)
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0", "added_tokens": []}')

    found = find_inputs([str(tmp_path)])

    assert [Path(path).parent.name for path in found.traces] == ["new"]
    assert [Path(path).parent.name for path in found.texts] == ["new"]


def test_an_excluded_run_is_not_the_newest(tmp_path: Path) -> None:
    save(tmp_path, handler("host_1", T))
    save(tmp_path, handler("host_2", T + 5 * MINUTE))

    assert [Path(path).name for path in find_inputs([str(tmp_path)], exclude=["host_2*"]).traces] == [
        handler("host_1", T)
    ]
