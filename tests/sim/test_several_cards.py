"""Several simulated cards: real values through gloo, clocks that agree at each collective, and a trace for each
rank.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from sim.runs import run

from perftool import open_trace
from perftool.errors import PerfToolError
from perftool.model.devices import known_devices
from perftool.sim import ranks, simulate_ranks
from perftool.sim.machine.costs import default_costs
from perftool.sim.machine.network import Collective
from perftool.sim.spawned import Settings

SPAWNED = """
    import sys, time
    import torch.distributed as dist
    import torch.multiprocessing as mp

    def main(rank, place):
        dist.init_process_group("hccl", init_method=f"file://{place}/meeting", rank=rank, world_size=2)
        assert (dist.get_backend(), torch.ones(2, device="hpu").device.type) == ("hccl", "hpu")
        torch.manual_seed(0)
        ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 32).to("hpu"), gradient_as_bucket_view=True)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        data = torch.randn(8, 64).chunk(2)[rank].to("hpu")
        for _ in range(4):
            if rank:
                time.sleep(0.5)
            ddp(data).square().mean().backward()
            htcore.mark_step()
            optimizer.step()
            optimizer.zero_grad()
            htcore.mark_step()
        mean = torch.full((2,), float(rank), dtype=torch.bfloat16, device="hpu")
        dist.all_reduce(mean, group=dist.new_group([0, 1], backend="hccl"), async_op=True)
        parts = [torch.zeros(2, dtype=torch.bfloat16, device="hpu") for _ in range(2)]
        dist.all_gather(parts, mean)
        dist.send(mean, 1) if rank == 0 else dist.recv(mean, 0)
        dist.barrier()
        with open(f"{place}/{rank}.txt", "w") as file:
            print(mean.tolist(), [part.tolist() for part in parts], ddp.module.bias.tolist(), sep=";", file=file)
        dist.destroy_process_group()

    if __name__ == "__main__":
        mp.spawn(main, args=(sys.argv[1],), nprocs=2)
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[str], Path]:
    """The run, the output of each rank, and the folder."""
    folder = tmp_path_factory.mktemp("ranks")
    done = run(folder, SPAWNED, str(folder)).done
    assert done.exit_code == 0
    return done, [(folder / f"{rank}.txt").read_text().strip() for rank in range(2)], folder


def test_values_are_those_of_all_the_data_on_one_card(pair: tuple[Any, list[str], Path], tmp_path: Path) -> None:
    text = """
        import sys
        torch.manual_seed(0)
        model = torch.nn.Linear(64, 32)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = torch.randn(8, 64)
        for _ in range(4):
            model(data).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        with open(sys.argv[1], "w") as file:
            file.write(str(model.bias.tolist()))
    """
    run(tmp_path, text, str(tmp_path / "alone.txt"))
    alone = orjson.loads((tmp_path / "alone.txt").read_text())

    first, second = (line.split(";") for line in pair[1])
    assert first == second
    assert first[:2] == ["[1.0, 1.0]", "[[1.0, 1.0], [1.0, 1.0]]"]
    assert orjson.loads(first[2]) == pytest.approx(alone, abs=1e-6)


def test_a_rank_that_is_late_keeps_the_other_waiting(pair: tuple[Any, list[str], Path]) -> None:
    traces = [orjson.loads(each.read_bytes()) for each in pair[0].spawned]

    assert [each["distributedInfo"] for each in traces] == [
        {"backend": "hccl", "rank": rank, "world_size": 2} for rank in range(2)
    ]
    slices = [[each for each in one["traceEvents"] if each["name"] == "hccl_all_reduce"] for one in traces]
    sizes = [[each["args"]["In msg nelems"] for each in one] for one in slices]
    assert sizes == [[64 * 32 + 32] * 4 + [2]] * 2
    ends = [[each["ts"] + each["dur"] for each in one] for one in slices]
    assert ends[0] == pytest.approx(ends[1], abs=0.01)
    # Half a second of sleep outlasts all compilations. In the second step, the ranks meet earlier, because DDP
    # rearranges its buckets.
    waits = [early["dur"] - late["dur"] > 300_000 for early, late in zip(*slices, strict=True)]
    assert waits[:4] == [True, False, True, True]


def test_the_traces_of_both_ranks_are_one_run(pair: tuple[Any, list[str], Path]) -> None:
    assert [each.name for each in pair[0].spawned] == ["run0.rank0.json", "run0.rank1.json"]
    assert not pair[0].trace.exists()
    with open_trace(pair[2] / "run0.rank?.json") as trace:
        _, found = trace.query(
            "SELECT rank, operation, count(*), sum(bytes) FROM collectives WHERE side = 'device' GROUP BY ALL"
        )
        _, waited = trace.query("SELECT rank FROM waits GROUP BY rank ORDER BY sum(waited_ns) DESC LIMIT 1")
    assert {(rank, "all_reduce", 5, 4 * 4 * (64 * 32 + 32) + 4) for rank in range(2)} < set(found)
    assert waited == [(0,)]


_REFUSED = "{} would be overwritten, but it is not from a simulation"


def test_a_process_that_a_script_spawns_replaces_only_files_of_a_simulation(tmp_path: Path) -> None:
    (tmp_path / "run0.rank0.log").write_text("mine")
    text = """
        import torch.multiprocessing as mp

        def main(rank):
            print(torch.ones(2, device="hpu").sum().item())

        if __name__ == "__main__":
            mp.spawn(main, nprocs=1)
    """
    with pytest.raises(PerfToolError, match=_REFUSED.format("run0.rank0.log")):
        run(tmp_path, text)
    assert [path.name for path in tmp_path.glob("run0*")] == ["run0.rank0.log"]
    assert (tmp_path / "run0.rank0.log").read_text() == "mine"


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("name", ["run0.rank1.log", "run0.rank1.metrics.json", "run0.rank0.json"])
def test_no_rank_writes_if_one_would_replace_other_files(tmp_path: Path, name: str, rank: int) -> None:
    (tmp_path / name).write_text("mine")
    started = tmp_path / "started"
    started.mkdir()
    settings = Settings("GAUDI2", "lazy", None, None, None, tmp_path / "run0.json", started)
    written: list[Path] = []

    settings.write(SimpleNamespace(rank=rank, ranks=2, write=lambda *paths: written.append(paths)))

    assert (written, settings.written()) == ([], ())
    with pytest.raises(PerfToolError, match=_REFUSED.format(name)):
        settings.require_written()


@pytest.mark.parametrize(
    ("kind", "cards", "share"),
    [("all_reduce", 2, 1.0), ("all_reduce", 8, 1.75), ("all_gather", 4, 3.0), ("reduce_scatter", 4, 0.75),
     ("broadcast", 8, 1.0), ("barrier", 8, 0.0)],
)  # fmt: skip
def test_how_long_a_collective_takes(kind: str, cards: int, share: float) -> None:
    """``share`` times the size of the collective goes over the links to other cards. The links to one other card have a
    seventh of the total bandwidth.
    """
    facts = next(each for each in known_devices() if each.name == "GAUDI2")
    costs, size = default_costs(), 0 if kind == "barrier" else 2**30
    collective = Collective(kind, size, size // 4, "Float", "0", tuple(range(cards)))

    rate = 262.5e9 * (cards - 1) / 7 * costs.links_share
    expected = costs.links_setup_us * 1e3 + share * size / rate * 1e9
    assert collective.length(facts, costs) == pytest.approx(expected, rel=1e-6)


def test_a_group_with_ranks_that_are_never_started_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "torch.distributed.init_process_group('hccl', rank=0, world_size=4)"

    assert run(tmp_path, text).done.exit_code == 1
    assert capsys.readouterr().err.endswith(
        "the script asks for a group of 4 cards, but only one was started; simulate --ranks 4 starts all\n"
    )


def test_the_other_ranks_end_when_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = tmp_path / "python"
    stub.write_text(
        f"#!{sys.executable}\nimport os, sys, time\n"
        "time.sleep(60) if os.environ['RANK'] == '0' else sys.exit(3 if os.environ['WORLD_SIZE'] == '2' else 4)\n"
    )
    stub.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stub))
    started: list[subprocess.Popen[bytes]] = []
    plain = subprocess.Popen
    monkeypatch.setattr(ranks.subprocess, "Popen", lambda *a, **k: started.append(plain(*a, **k)) or started[-1])
    script = tmp_path / "script.py"
    script.write_text("")

    assert simulate_ranks(script, output=tmp_path / "run.json") == (3, [])
    assert [child.returncode for child in started] == [-15, 3]


@pytest.mark.slow
def test_ranks_option_starts_that_many_processes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.py"
    text = Path(__file__).parent / "scripts" / "frameworks" / "ddp.py"
    script.write_text(text.read_text())

    code, traces = simulate_ranks(script, ["hpu"], 2, tmp_path / "run.json.gz", ["--skip-steps", "0"])
    values = sorted(line for line in capfd.readouterr().out.splitlines() if line.startswith("value"))
    assert (code, [each.name for each in traces]) == (0, ["run.rank0.json.gz", "run.rank1.json.gz"])
    assert values[::2] == values[1::2]
    before = [each.read_bytes() for each in traces]
    simulate_ranks(script, ["hpu"], 2, tmp_path / "run.json.gz", ["--skip-steps", "0"])
    assert [each.read_bytes() for each in traces] == before
