"""Scripts may crash, exit, read arguments, fork or run forever. A trace of what ran is always written."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders.program import Run as Program
from sim.runs import run
from warm_python import warm_python

from perftool.errors import InputError, PerfToolError
from perftool.sim import simulate

WORK = 'x = torch.ones(4, device="hpu") + 1\nhtcore.mark_step()\n'


def test_a_crash_keeps_traceback_exit_code_and_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(tmp_path, WORK + "def broken():\n    return x @ torch.ones(5, 5, device='hpu')\nbroken()\n")
    error = capsys.readouterr().err
    assert (done.done.exit_code, done.done.interrupted) == (1, "the script raised RuntimeError")
    assert error.startswith("Traceback (most recent call last):\n")
    assert "in broken" in error
    assert "perftool" not in error
    assert done.top["interrupted"] == "the script raised RuntimeError"
    assert done.kernels()


@pytest.mark.parametrize(
    ("statement", "code", "reason"),
    [
        ("import sys; sys.exit(3)", 3, "the script ended with exit code 3"),
        ("import sys; sys.exit()", 0, None),
        ("import sys; sys.exit(0)", 0, None),
        ("raise SystemExit('no data')", 1, "the script ended with exit code 1"),
        ("raise KeyboardInterrupt", 130, "the script was interrupted"),
        ("def (", 1, "the script raised SyntaxError"),
        ("import no_such_module", 1, "the script raised ModuleNotFoundError"),
        ("import os; os._exit(4)", 4, "the script ended with exit code 4"),
    ],
)
def test_a_script_may_end_in_any_way(tmp_path: Path, statement: str, code: int, reason: str | None) -> None:
    done = run(tmp_path, WORK + statement).done
    assert (done.exit_code, done.interrupted) == (code, reason)
    assert done.trace.exists()
    assert done.log.exists()
    assert done.metrics.exists()


@pytest.mark.parametrize("ending", ["sys.exit(3)", "0", "raise ValueError", "os._exit(3)"])
def test_a_forked_child_writes_no_files(tmp_path: Path, ending: str) -> None:
    child = f"import os, sys\nchild = os.fork()\nif not child:\n    {ending}\nelse:\n    os.waitpid(child, 0)\n"
    program = tmp_path / "program.py"
    program.write_text("import torch\nimport habana_frameworks.torch.core as htcore\n" + WORK + child)
    call = f"simulate(Path({str(program)!r})).exit_code"
    code = f"from perftool.sim import simulate; from pathlib import Path; print({call})"
    done = subprocess.run([*warm_python(), "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_a_script_sees_its_own_name_and_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "neighbour.py").write_text("NAME = 'neighbour'\n")
    before = sys.argv, sys.path[:], sys.modules["__main__"]
    text = (
        "import sys, neighbour\nprint(__name__, __file__, sys.argv[1:], neighbour.NAME, __import__('__main__').WORD)\n"
    )
    run(tmp_path, "WORD = 'here'\n" + text, "--size", "3")
    assert capsys.readouterr().out == f"__main__ {tmp_path / 'script.py'} ['--size', '3'] neighbour here\n"
    assert (sys.argv, sys.path, sys.modules["__main__"]) == before


def test_the_process_is_restored_after_a_run(tmp_path: Path) -> None:
    import torch

    compiled, sleep = torch.compile, time.sleep
    run(tmp_path, WORK)
    assert torch.compile is compiled
    assert time.sleep is sleep
    assert not hasattr(torch, "hpu")
    assert not any(name.startswith("habana_frameworks") for name in sys.modules)
    assert str(torch.ones(2).device) == "cpu"


def test_steps_are_limited(tmp_path: Path) -> None:
    text = """
        model = torch.nn.Linear(4, 4).to("hpu")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        while True:
            try:
                model(torch.ones(2, 4, device="hpu")).sum().backward()
                optimizer.step()
                htcore.mark_step()
            except Exception:
                pass
    """
    done = run(tmp_path, text, max_steps=3)
    assert (done.done.exit_code, done.done.steps) == (0, 3)
    assert done.done.interrupted == "the script was stopped after 3 steps (--max-steps)"


GAN = """
    D, G = (torch.nn.Linear(4, 4).to("hpu") for _ in range(2))
    optimizers = [torch.optim.Adam(each.parameters()) for each in (D, G)]
    for _ in range(4):
        for number, optimizer in enumerate(optimizers):
            for _ in range({critics} if number == 0 else 1):
                D(G(torch.ones(2, 4, device="hpu"))).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                htcore.mark_step()
"""


@pytest.mark.parametrize("critics", [1, 3])
def test_two_optimizers_in_turn_are_one_step(tmp_path: Path, critics: int) -> None:
    whole = run(tmp_path, GAN.format(critics=critics))
    short = run(tmp_path, GAN.format(critics=critics), max_steps=3)

    assert (whole.done.steps, short.done.steps) == (4, 3)
    assert len(short.named("Optimizer.step#Adam.step")) == 3 * (critics + 1)


MARKS = """
    from torch.utils.data import DataLoader
    model = torch.nn.Linear(4, 4).to("hpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number, batch in enumerate(DataLoader(torch.ones(12, 4), batch_size=2)):
        model(batch.to("hpu")).sum().backward()
        htcore.mark_step()
        if number % 2:
            optimizer.step()
            htcore.mark_step()
        if number % 3 == 2:
            with torch.profiler.record_function(f"ProfilerStep#{number}"):
                pass
"""


@pytest.mark.parametrize(
    ("source", "steps"), [(None, 2), ("profiler", 2), ("optimizer", 3), ("loader", 6), ("mark_step", 3)]
)
def test_the_source_of_steps(tmp_path: Path, source: str | None, steps: int) -> None:
    whole, short = run(tmp_path, MARKS, steps_from=source), run(tmp_path, MARKS, steps_from=source, max_steps=2)

    assert (whole.done.steps, short.done.steps) == (steps, 2)


def test_without_loader_and_optimizer_a_step_ends_at_the_last_mark(tmp_path: Path) -> None:
    text = "x = torch.ones(4, device='hpu')\nfor _ in range(5):\n    x.add_(1)\n    htcore.mark_step()\n"
    text += "    x.mul_(2)\n    htcore.mark_step()\n"

    whole, short = run(tmp_path, text), run(tmp_path, text, max_steps=3)
    assert (whole.done.steps, short.done.steps) == (5, 3)


@pytest.mark.parametrize(
    "loop", ["for batch in loader:\n    batch.to('hpu')", "for _ in range(9):\n    htcore.mark_step()"]
)
def test_steps_of_other_kinds_are_limited_too(tmp_path: Path, loop: str) -> None:
    text = (
        "from torch.utils.data import DataLoader\nloader = DataLoader(torch.ones(64, 4), batch_size=2)\n" + WORK + loop
    )
    assert run(tmp_path, text, max_steps=2).done.interrupted is not None


def test_loader_workers_are_processes_without_the_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """
        import os
        from torch.utils.data import DataLoader, Dataset
        class Pairs(Dataset):
            def __len__(self):
                return 8
            def __getitem__(self, index):
                return torch.full((3,), index) * 2, os.getpid()
        seen = []
        for values, pids in DataLoader(Pairs(), batch_size=2, num_workers=2, pin_memory=True):
            assert values.is_pinned() and str(values.device) == "cpu"
            seen += pids.tolist()
            print(values.to("hpu", non_blocking=True).sum().item())
        assert os.getpid() not in seen and len(set(seen)) == 2
    """
    done = run(tmp_path, text)
    assert capsys.readouterr().out == "6\n30\n54\n78\n"
    assert (done.done.exit_code, len(list(tmp_path.glob("*.json")))) == (0, 2)
    names = {event["name"] for event in done.events}
    assert "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__" in names


def test_a_script_that_profiles_itself_marks_its_steps(tmp_path: Path) -> None:
    text = """
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.HPU]) as profiler:
            torch.ones(4, device="hpu").sum()
    """
    assert run(tmp_path, text).done.exit_code == 0
    text = """
        for number in range(3):
            with torch.profiler.record_function(f"ProfilerStep#{number}"):
                torch.ones(4, device="hpu").sum()
    """
    done = run(tmp_path, text)
    assert [len(done.named(f"ProfilerStep#{number}")) for number in range(4)] == [1, 1, 1, 0]


def test_shapes_that_depend_on_data_cut_the_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """
        x = torch.tensor([3.0, 0.0, 1.0, 3.0]).to("hpu")
        print(x.nonzero().flatten().tolist(), torch.unique(x).tolist(), x[x > 1].tolist())
    """
    done = run(tmp_path, text)
    assert capsys.readouterr().out == "[0, 2, 3] [0.0, 1.0, 3.0] [3.0, 3.0]\n"
    reasons = [line.split("step marker due to ")[1] for line in done.log.splitlines() if "step marker" in line]
    assert "non zero" in reasons
    assert "unique" in reasons


def test_a_script_that_uses_no_device_says_so(tmp_path: Path) -> None:
    done = run(tmp_path, "print(torch.ones(3).sum().item())")
    assert (done.done.used, done.done.exit_code, done.kernels()) == (False, 0, [])


def test_a_log_of_something_else_is_not_overwritten(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("")
    (tmp_path / "run.log").write_text("mine")
    with pytest.raises(PerfToolError, match="would be overwritten"):
        simulate(script, output=tmp_path / "run.json")
    assert (tmp_path / "run.log").read_text() == "mine"


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        simulate(tmp_path / "none.py")
    script = tmp_path / "script.py"
    script.write_text("")
    with pytest.raises(PerfToolError, match="no device 'tpu'"):
        simulate(script, device="tpu")
    with pytest.raises(PerfToolError, match="no mode 'fast'"):
        simulate(script, mode="fast")
    with pytest.raises(PerfToolError, match="'epoch' cannot mark steps; profiler, optimizer, loader, mark_step can"):
        simulate(script, steps_from="epoch")


def test_an_interrupted_run_is_reported_up_to_the_interrupt(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "endless.py"
    script.write_text(
        "import signal, torch\nwhile True:\n"
        "    torch.ones(4, device='hpu').sum().item()\n    signal.raise_signal(signal.SIGINT)\n"
    )
    program = Program(capfdbinary, monkeypatch)
    # Shells make background processes ignore interrupts.
    plain = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code = program("simulate", str(script), "-o", str(tmp_path / "t.json"))
    finally:
        signal.signal(signal.SIGINT, plain)
    assert code == 128 + signal.SIGINT
    assert (tmp_path / "t.json").exists()
    assert "the script was interrupted; the trace ends there" in program.err
    assert "Simulated, not recorded on a device" in program.out


def test_ranks_that_are_terminated_write_what_they_did_until_then(tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    loop = "while True:\n    torch.ones(4, device='hpu').sum().item()\n    print('on', rank, flush=True)\n"
    script.write_text(f"import os, torch\nrank = os.environ.get('RANK')\n{loop}")
    command = [
        sys.executable,
        "-m",
        "perftool",
        "simulate",
        str(script),
        "--ranks",
        "2",
        "-o",
        str(tmp_path / "t.json"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        started: set[str] = set()
        while len(started) < 2:
            started.add(child.stdout.readline())
        child.send_signal(signal.SIGTERM)
        try:
            child.communicate(timeout=120)
        finally:
            child.kill()
    assert child.returncode == 128 + signal.SIGTERM
    assert [path.name for path in sorted(tmp_path.glob("t*.json")) if "metrics" not in path.name] == [
        "t.rank0.json", "t.rank1.json",
    ]  # fmt: skip
