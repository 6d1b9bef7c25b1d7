"""``record`` records a few steps of unmodified programs and changes nothing else about them."""

from __future__ import annotations

import ast
import errno
import gc
import gzip
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import nullcontext
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from recorded_script import run
from stores import steps_in
from torch.utils.data import DataLoader
from warm_python import warm_python

from perftool.commands import record
from perftool.commands.record import _Estimate, why_nothing
from perftool.engine.analysis import analysed
from perftool.engine.gate.lint import LintPlan, lint_run
from perftool.engine.rules.pack import builtin_folder, load_pack
from perftool.engine.settings.settings import Settings
from perftool.errors import OutputClosedError, PerfToolError
from perftool.integrations.activities import ProfilerAction
from perftool.integrations.machine import Watch
from perftool.integrations.record import plan as plan_module
from perftool.integrations.record.plan import VARIABLE, Note, Plan, plan_here
from perftool.integrations.record.steps import Steps
from perftool.model.choices import Color
from perftool.readers.discover import find_inputs
from perftool.reporters.lint.sarif import render_sarif

TRAIN = """
import sys, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for number in range(11):
    optimizer.zero_grad(); model(torch.ones(2, 4)).sum().backward(); optimizer.step()
    {body}
print("over")
"""
GAN = """
import torch
first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in (first, second)]
for _ in range(11):
    for model, optimizer in zip((first, second), optimizers):
        model(torch.ones(2, 4)).sum().backward(); optimizer.step()
"""
LOADER = """
import torch
model = torch.nn.Linear(4, 4)
for batch in torch.utils.data.DataLoader(torch.ones(22, 4), batch_size=2):
    model(batch)
"""
FORWARD = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
for _ in range(11):
    model(torch.ones(2, 4))
"""
QUANTISED = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear})
for _ in range(11):
    model(torch.ones(2, 4))
"""
# Calls the model to count its operations before an optimizer exists.
INSPECTED = """
import copy, torch
model = torch.nn.Linear(4, 4)
copy.deepcopy(model)(torch.ones(2, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(11):
    model(torch.ones(2, 4)).sum().backward(); optimizer.step()
"""
# Computes weights, and calls a part of the model to learn the size of its result.
BUILDS = """
import torch
from torch.nn.utils.parametrize import register_parametrization
class Symmetric(torch.nn.Module):
    def forward(self, weight): return weight + weight.T
class Policy(torch.nn.Module):
    def __init__(this):
        super().__init__()
        this.features = torch.nn.Sequential(torch.nn.Linear(4, 4))
        this.head = torch.nn.Linear(this.features(torch.ones(1, 4)).shape[1], 4)
        register_parametrization(this.head, "weight", Symmetric())
    def forward(this, state): return this.head(this.features(state))
model = Policy()
model.head.weight
"""
# Calls the model before an optimizer exists. Each step then calls it more often than any inspection.
INSPECTED_OFTEN = """
import torch
model = torch.nn.Linear(4, 4)
for _ in range(2): model(torch.ones(2, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(11):
    for _ in range(8): loss = model(torch.ones(2, 4)).sum()
    loss.backward(); optimizer.step()
"""
# Calls a part of the model before a loader exists.
INSPECTED_PART = """
import torch
part = torch.nn.Linear(4, 4)
model = torch.nn.Sequential(part, part)
part(torch.ones(2, 4))
for batch in torch.utils.data.DataLoader(torch.ones(22, 4), batch_size=2):
    model(batch)
"""
OWN = """
import torch
with torch.profiler.profile() as mine:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], 0.1)
    for _ in range(11):
        optimizer.step(); mine.step()
print(len(mine.key_averages()) > 0)
"""


STEPS = [f"ProfilerStep#{number}" for number in (2, 3, 4, 5, 6)]


def recorded(folder: Path, recording: str = "*") -> list[str]:
    [trace] = (folder / "perftool_record").glob(f"{recording}/*.pt.trace.json.gz")
    return [step["name"] for step in steps_in(trace) if not step["partial"]]


def linted(path: Path, plan: LintPlan) -> Any:
    """The SARIF output of lint for ``path``."""
    with analysed(find_inputs([str(path)]), plan.rules) as opened:
        return json.loads(render_sarif(lint_run(opened, plan)))


def test_every_recording_has_its_own_folder_whose_name_picks_it(tmp_path: Path) -> None:
    for source in (FORWARD, LOADER):
        done = run(tmp_path, source)
        assert done.returncode == 0
        assert "habana_perf_tool: wrote" in done.stderr

    first, second = sorted(path.name for path in (tmp_path / "perftool_record").iterdir())
    assert [recorded(tmp_path, name) for name in (first, second)] == [STEPS, STEPS]
    found = find_inputs([str(tmp_path / "perftool_record")])
    assert [Path(trace).parent.name for trace in found.traces] == [second]
    assert f"analysing the newest: {second}. --run NAME picks another: {first}" in found.notes[0]
    picked = find_inputs([str(tmp_path / "perftool_record")], run=first)
    assert [Path(trace).parent.name for trace in picked.traces] == [first]


def test_two_recordings_of_one_second_have_two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Frozen(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime(2026, 1, 2, 3, 4, 5)

    monkeypatch.setattr(record, "datetime", Frozen)
    with record._own_folder(tmp_path) as first, record._own_folder(tmp_path) as second:
        assert (first.name, second.name) == ("2026-01-02_03-04-05", "2026-01-02_03-04-05_2")
        assert first.stat().st_mode & 0o022 == 0
        (second / "trace").touch()
        # A link is not followed, because it may lead anywhere.
        (tmp_path / "2026-01-02_03-04-05_3").symlink_to("gone")
        with record._own_folder(tmp_path) as third:
            assert third.name == "2026-01-02_03-04-05_4"
    assert {path.name for path in tmp_path.iterdir()} == {second.name, "2026-01-02_03-04-05_3"}


NO_NOTES = {
    "cut": '{"stage": "rea{"stage": "ready", "text": "", "trace": null}',
    "deep": "[" * 100_000,
    "key": '{"stage": "ready", "new": 1}',
    "stage": '{"stage": "next"}',
    "list": '{"stage": ["ready"]}',
    "number": "7",
    "type": '{"stage": "ready", "text": 7}',
    "bytes": "\udcff",
}


@pytest.mark.parametrize("line", NO_NOTES.values(), ids=NO_NOTES.keys())
def test_lines_that_are_no_notes_are_skipped(tmp_path: Path, line: str) -> None:
    good = Note("ready", "text")
    plan = Plan(str(tmp_path), str(tmp_path))
    plan.note(good)
    (tmp_path / "7.json").write_text(f"{line}\n", errors="surrogateescape")
    assert plan.notes_left() == [good]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of Unix")
def test_only_regular_files_are_notes_or_traces(tmp_path: Path) -> None:
    source = (
        "import json, os\n"
        "plan = json.loads(os.environ['PERFTOOL_RECORD'])\n"
        "os.mkfifo(plan['notes'] + '/7.json'); os.mkdir(plan['notes'] + '/8.json')\n"
        "os.symlink('/dev/zero', plan['notes'] + '/9.json'); os.mkfifo(plan['folder'] + '/x.pt.trace.json')\n"
    )
    (tmp_path / "script.py").write_text(source)
    command = [sys.executable, "-m", "perftool", "record", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "nothing was recorded" in done.stderr


def test_of_a_long_file_of_notes_the_beginning_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "_LONGEST_FILE", 1000)
    (tmp_path / "7.json").write_text("".join(f'{{"stage": "ready", "text": "{n:02}"}}\n' for n in range(40)))
    assert Plan(str(tmp_path), str(tmp_path)).notes_left() == [Note("ready", f"{n:02}") for n in range(1000 // 33)]


# Leaves a process behind that keeps filling the folder of notes for 8 seconds.
FILLS = """
import json, os, time
notes = json.loads(os.environ["PERFTOOL_RECORD"])["notes"]
if os.fork() == 0:
    os.setsid()
    os.dup2(os.open("/dev/null", os.O_RDWR), 1); os.dup2(1, 2)
    end = time.monotonic() + 8
    number = 0
    while time.monotonic() < end:
        number += 1
        try:
            open(f"{notes}/{number}", "w").close()
        except OSError:
            os._exit(0)
    os._exit(0)
time.sleep(1)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks of Unix")
@pytest.mark.parametrize("terminal", [True, False])
def test_the_estimate_does_not_land_on_a_progress_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    plan = Plan(str(tmp_path), str(tmp_path))
    (tmp_path / "1.json").write_text(json.dumps({"stage": "recording", "text": "recording 5 steps now"}) + "\n")
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    print("epoch 1: 3 %", end="", file=sys.stderr)
    assert _Estimate(plan, Color.never)()
    line = "habana_perf_tool: recording 5 steps now\n"
    assert capsys.readouterr().err == "epoch 1: 3 %" + ("\n" if terminal else "") + line


@pytest.mark.parametrize(
    ("error", "raised"), [(PerfToolError("no"), None), (BrokenPipeError(), OutputClosedError), (KeyError(), KeyError)]
)
def test_the_exit_code_is_the_programs_even_if_the_report_fails(error: Exception, raised: Any) -> None:
    with pytest.raises(raised) if raised else nullcontext() as found, record._program_first(7):
        raise error
    assert raised is not OutputClosedError or found.value.exit_code == 7


def test_a_full_disk_does_not_end_record_before_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "1.json").write_text(json.dumps({"stage": "recording", "text": "recording 5 steps now"}) + "\n")

    def full(text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys.stderr, "write", full)
    assert _Estimate(Plan(str(tmp_path), str(tmp_path)), Color.never)()


def test_a_process_that_stays_behind_causes_no_error(tmp_path: Path) -> None:
    done = run(tmp_path, FILLS)
    assert done.returncode == 2
    assert done.stderr.startswith("habana_perf_tool: nothing was recorded")


@pytest.mark.parametrize(
    "source",
    [GAN, QUANTISED, INSPECTED, INSPECTED_OFTEN, INSPECTED_PART],
    ids=["gan", "quantised", "inspected", "inspected often", "inspected part"],
)
def test_the_steps_of_a_program_are_found(tmp_path: Path, source: str) -> None:
    done = run(tmp_path, source)

    assert done.returncode == 0
    assert "habana_perf_tool: wrote" in done.stderr
    assert ("A step is a call to" in done.stderr) == (source in (FORWARD, QUANTISED))
    assert recorded(tmp_path) == STEPS


def test_calls_while_a_model_is_built_are_no_steps(tmp_path: Path) -> None:
    done = run(tmp_path, BUILDS + "for _ in range(11): model(torch.ones(2, 4))\n")

    assert "A step is a call to Policy" in done.stderr


def test_the_time_of_recording_is_estimated_before_it_ends(tmp_path: Path) -> None:
    # The seventh step waits until the test has written to a pipe.
    wait = "number == 6 and sys.stdin.readline()"
    (tmp_path / "script.py").write_text(TRAIN.format(body=wait))
    command = [sys.executable, "-m", "perftool", "record", "--no-report", "--", *warm_python(), "script.py"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, stdin=pipe, stderr=pipe, text=True) as program:
        assert program.stderr
        said = next(line for line in program.stderr if line.startswith("habana_perf_tool:"))
        after = program.communicate("go on\n")[1]
    # No step time without the profiler is printed, because the only earlier step is the first one, which is slow.
    begin = "habana_perf_tool: recording 5 steps now: recording takes about "
    assert re.match(rf"{begin}[^;]+, then the trace is saved\n", said)
    assert re.search(
        r"recording 5 steps took [^,]+, stopping the profiler [^,]+, measuring ops [^,]+, and saving \S+ m?s", after
    )
    assert program.returncode == 0


def test_several_steps_before_show_how_long_one_takes_without_the_profiler() -> None:
    watch = Watch(lambda step: ProfilerAction.NONE)
    watch._quiet_steps = [900, 10]
    assert watch.usual_step_ns is None
    watch._quiet_steps += [12, 14, 16, 18]
    assert watch.usual_step_ns == 14


COMPILED = """
import torch
model = torch.compile(torch.nn.Linear(4, 4), backend="eager")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for number in range(8):
    model(torch.ones(2, 4)).sum().backward(); optimizer.step()
torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
model(torch.ones(2, 4))
"""


def test_our_hook_causes_no_warning_about_global_hooks(tmp_path: Path) -> None:
    done = run(tmp_path, COMPILED)

    assert re.findall(r"script.py:(\d+): UserWarning: Using `torch.compile", done.stderr) == ["8"]


def test_the_report_follows_the_output_of_a_program_that_looks_for_pytorch(tmp_path: Path) -> None:
    # A program that only looks for PyTorch must not import it.
    looked = "import importlib.util\nassert importlib.util.find_spec('torch')\n"
    done = run(tmp_path, looked + TRAIN.format(body="pass"), report=True, fresh=True)

    assert done.returncode == 0
    assert done.stdout.startswith("over\n")
    # A long header continues on a second line.
    assert re.search(r"training\s+5 steps", done.stdout)
    assert recorded(tmp_path) == STEPS


def test_an_exception_of_the_program_is_unchanged(tmp_path: Path) -> None:
    done = run(tmp_path, TRAIN.format(body="assert number < 10, 'my own words'"))

    assert done.returncode == 1
    assert "AssertionError: my own words" in done.stderr.splitlines()
    assert len(recorded(tmp_path)) == 5


EXAMPLE = Path(__file__).parents[2] / "examples" / "slow_training.py"


def test_findings_name_the_lines_that_cause_them(tmp_path: Path) -> None:
    """The causes are a wait for the loader, slow Python and an unfused optimizer. Reading a scalar costs nothing on a
    CPU.
    """
    done = run(tmp_path, EXAMPLE.read_text())
    assert done.returncode == 0
    [trace] = (tmp_path / "perftool_record").glob("*/*")
    plan = LintPlan(load_pack(builtin_folder()), Settings(), tmp_path)

    log = linted(trace, plan)

    results = log["runs"][0]["results"]
    text = (tmp_path / "script.py").read_text().splitlines()
    places = {
        result["ruleId"]: (place["artifactLocation"]["uri"], text[place["region"]["startLine"] - 1].strip())
        for result in results
        for place in [result["locations"][0]["physicalLocation"]]
    }
    assert places["GAP102"] == ("script.py", "time.sleep(0.002)  # 1: the training waits for this")
    # On a busy machine (TRC111), a thread that waits for a core runs no Python, so the finding has no line.
    assert "TRC111" in places or places["GAP108"] == ("script.py", "def clean(texts):")
    assert places["FUS101"] == ("script.py", "optimizer.step()  # 3: parameter by parameter")


def test_a_sleep_in_every_step_is_a_warning_at_its_line(tmp_path: Path) -> None:
    source = """
import time, torch
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], 0.1)
for _ in range(9):
    weight.sum().backward()
    time.sleep(0.05)
    optimizer.step()
"""
    assert run(tmp_path, source).returncode == 0
    plan = LintPlan(load_pack(builtin_folder()), Settings(), tmp_path)

    log = linted(tmp_path / "perftool_record", plan)

    [result] = (one for one in log["runs"][0]["results"] if one["ruleId"] == "GAP112")
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("script.py", 7)
    assert result["level"] == "warning"


FRAMEWORKS = {
    "pytorch_lightning": """
import torch, pytorch_lightning as pl
class Net(pl.LightningModule):
    def __init__(self):
        super().__init__(); self.net = torch.nn.Linear(4, 4)
    def training_step(self, batch, index):
        return self.net(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
data = torch.utils.data.DataLoader(torch.ones(22, 4), batch_size=2)
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False)
pl.Trainer(max_epochs=1, accelerator="cpu", **quiet).fit(Net(), data)
""",
    "transformers": """
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
small = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, vocab_size=9)
model = BertForSequenceClassification(BertConfig(**small))
data = [{"input_ids": torch.ones(4, dtype=torch.long), "labels": 1} for _ in range(44)]
arguments = TrainingArguments("out", max_steps=11, per_device_train_batch_size=2, gradient_accumulation_steps=2,
                              report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True)
Trainer(model, arguments, train_dataset=data).train()
""",
    "accelerate": """
import torch
from accelerate import Accelerator
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = torch.nn.Linear(4, 4)
data = torch.utils.data.DataLoader(torch.ones(44, 4), batch_size=2)
model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1), data)
for batch in data:
    with accelerator.accumulate(model):
        accelerator.backward(model(batch).sum()); optimizer.step(); optimizer.zero_grad()
""",
    "torch": """
import torch
model = torch.nn.Linear(4, 4)
fast = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(11):
    fast(torch.ones(2, 4)).sum().backward(); optimizer.step(); optimizer.zero_grad()
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("library", FRAMEWORKS)
def test_the_steps_of_a_framework_are_found(tmp_path: Path, library: str) -> None:
    pytest.importorskip(library)
    done = run(tmp_path, FRAMEWORKS[library])

    assert done.returncode == 0, done.stderr
    assert recorded(tmp_path) == STEPS


DDP = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(11):
    optimizer.zero_grad(); model(torch.ones(2, 4)).sum().backward(); optimizer.step()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_each_rank_of_torchrun_records_itself(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(DDP)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "script.py"]
    command = [sys.executable, "-m", "perftool", "record", "--no-report", "--", *torchrun]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    names = [path.name.split(".")[0] for path in sorted((tmp_path / "perftool_record").glob("*/*"))]
    assert names == ["rank0", "rank1"]


def test_a_program_keeps_its_own_profiler(tmp_path: Path) -> None:
    done = run(tmp_path, OWN)

    assert (done.returncode, done.stdout) == (0, "True\n")
    assert "the program ended before it wrote its own recording; `record` wrote it" in done.stderr
    assert recorded(tmp_path)


@pytest.mark.skipif(not hasattr(torch.autograd, "profiler_legacy"), reason="PyTorch announces its removal")
def test_a_program_can_use_the_legacy_profiler(tmp_path: Path) -> None:
    body = """
    if number == 5:
        with torch.autograd.profiler_legacy.profile() as mine: torch.ones(1)
        print(len(mine.function_events) > 0)"""
    done = run(tmp_path, TRAIN.format(body=body))

    assert (done.returncode, done.stdout) == (0, "True\nover\n")
    assert "the program uses torch.profiler itself" in done.stderr


def test_a_program_may_forbid_native_calls(tmp_path: Path) -> None:
    forbids = """
import signal, sys
def forbid(event, arguments):
    if event.startswith("ctypes.") or event == "gc.get_objects": raise RuntimeError(event)
signal.signal(signal.SIGTERM, lambda *_: None)
sys.addaudithook(forbid)
"""
    done = run(tmp_path, TRAIN.format(body="").replace("\n", "\nimport torch" + forbids, 1))

    assert (done.returncode, done.stdout) == (0, "over\n")
    assert recorded(tmp_path) == STEPS


@pytest.mark.parametrize("moves", [True, False])
def test_a_trace_that_the_program_writes_counts_wherever_it_is(tmp_path: Path, moves: bool) -> None:
    writes = "mine.export_chrome_trace(path='own.json')\n" + "import os; os.rename('own.json', 'kept.json')\n" * moves
    done = run(tmp_path, OWN + writes)

    assert done.returncode == 0
    assert f"wrote {tmp_path / 'own.json'}{', which is no longer there' * moves}\n" in done.stderr
    assert "nothing was recorded" not in done.stderr
    assert "`record` wrote it" not in done.stderr
    assert not list((tmp_path / "perftool_record").iterdir())


def test_a_program_that_ends_too_early_is_reported(tmp_path: Path) -> None:
    done = run(tmp_path, TRAIN.format(body="pass"), "--wait", "20")

    assert done.returncode == 2
    assert (
        "the program ended after 11 steps, but recording starts after 22; to start earlier, lower --wait and --warmup"
    ) in done.stderr


def test_a_program_that_ends_in_its_first_recorded_step_has_a_part_of_a_step(tmp_path: Path) -> None:
    calls = """
import torch
model = torch.nn.Linear(4, 4)
for _ in range(3):
    model(torch.ones(2, 4))
"""
    done = run(tmp_path, calls)

    assert done.returncode == 0
    assert "recording part of a step took" in done.stderr
    assert "recording starts after" not in done.stderr


@pytest.mark.parametrize("batches", [11, 50])
def test_batches_of_a_program_with_an_unused_optimizer_may_be_the_steps(batches: int, tmp_path: Path) -> None:
    unused = f"""
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for batch in torch.utils.data.DataLoader(torch.ones({2 * batches}, 4), batch_size=2):
    model(batch)
"""
    done = run(tmp_path, unused)

    assert done.returncode == 2
    assert "nothing was recorded: no optimizer took a step; --steps-from loader counts each batch of" in done.stderr


# Trains with the batches of ``loader``, after a pass over the data that computed their ``mean``.
TRAINS_AFTER_A_PASS = """
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for batch in loader:
    optimizer.zero_grad()
    model(batch - mean).sum().backward()
    optimizer.step()
"""


def assert_the_training_is_recorded(folder: Path, first_pass: str) -> None:
    assert run(folder, first_pass + TRAINS_AFTER_A_PASS).returncode == 0

    [trace] = (folder / "perftool_record").glob("*/*.pt.trace.json.gz")
    assert b"Optimizer.step#SGD.step" in gzip.decompress(trace.read_bytes())


def test_a_pass_that_computes_statistics_of_the_data_is_no_step(tmp_path: Path) -> None:
    first_pass = """
import torch
loader = torch.utils.data.DataLoader(torch.ones(140, 4), batch_size=2)
mean = sum(batch.mean() for batch in loader) / len(loader)
"""
    assert_the_training_is_recorded(tmp_path, first_pass)


@pytest.mark.parametrize(
    "statistics",
    ["sum(batch.mean() for batch in loader)", "sum(resize(torch.ones(4)).mean() for _ in range(20))"],
    ids=["in a loader", "alone"],
)
def test_modules_that_prepare_samples_are_no_models(tmp_path: Path, statistics: str) -> None:
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "transforms.py").write_text("import torch\nclass Resize(torch.nn.Identity): pass\n")
    first_pass = f"""
import torch
from torchvision.transforms import Resize
class Data(torch.utils.data.Dataset):
    prepare = torch.nn.Identity()
    def __getitem__(self, index): return self.prepare(torch.ones(4))
    def __len__(self): return 140
loader, resize = torch.utils.data.DataLoader(Data(), batch_size=2), Resize()
mean = {statistics}
"""
    assert_the_training_is_recorded(tmp_path, first_pass)


def test_the_recording_of_a_loader_has_no_search_for_optimizers(tmp_path: Path) -> None:
    """The recorder used to search all objects at each batch, and the profiler recorded each of the million calls."""
    assert run(tmp_path, LOADER).returncode == 0

    [trace] = (tmp_path / "perftool_record").glob("*/*.pt.trace.json.gz")
    names = [event.get("name") or "" for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]]
    assert not [name for name in names if "_first_of" in name or ("steps.py" in name and "genexpr" in name)]


def test_an_optimizer_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search visits all objects of the program, and gradients may be accumulated over many batches."""
    searched: list[None] = []
    monkeypatch.setattr(gc, "get_objects", lambda get=gc.get_objects: searched.append(None) or get())
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    steps = Steps("auto", lambda: None)
    try:
        for batch in DataLoader(torch.ones(40, 4), batch_size=2):
            model(batch)
    finally:
        steps.close()
    assert (len(searched), steps.batches, len(optimizer.param_groups)) == (1, 20, 1)


def test_without_pytorch_nothing_is_recorded_and_record_says_so(tmp_path: Path) -> None:
    done = run(tmp_path, "print('hello')")

    assert (done.returncode, done.stdout) == (2, "hello\n")
    assert "no process of the program imported PyTorch" in done.stderr


def test_stop_after_recording_ends_the_program(tmp_path: Path) -> None:
    done = run(tmp_path, TRAIN.format(body="pass"), "--stop-after-recording")

    assert (done.returncode, done.stdout) == (0, "")
    assert len(recorded(tmp_path)) == 5


def test_a_program_that_cannot_be_run_gives_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "perftool", "record", "--", "no-such-program"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "habana_perf_tool: no-such-program: cannot run (No such file or directory)\n"


@pytest.mark.skipif(sys.platform != "linux", reason="signals of Linux")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGINT"])
def test_a_signal_reaches_the_program(tmp_path: Path, name: str) -> None:
    """A signal sent only to ``record`` reaches the program as well. If the program has no handler, the signal ends both
    and leaves no orphan.
    """
    (tmp_path / "script.py").write_text(
        "import signal, sys, time\n"
        f"signal.signal(signal.{name}, lambda *_: sys.exit(9))\n"
        "print('ready', flush=True)\ntime.sleep(60)\n"
    )
    command = [sys.executable, "-m", "perftool", "record", "-q", "--", sys.executable, "script.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, name))
        assert process.wait(60) == 9


def test_an_unwritable_folder_is_reported_before_the_program_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run(tmp_path, "print('it ran')", "-o", "file/traces")

    assert (done.returncode, done.stdout) == (2, "")
    assert "file/traces: cannot write traces there" in done.stderr


def test_notes_to_a_record_process_that_has_ended_are_dropped(tmp_path: Path) -> None:
    Plan(str(tmp_path), str(tmp_path / "gone")).note(Note("ready"))

    assert list(tmp_path.iterdir()) == []


HOSTILE = {
    "setuid": "os.setgid(65534); os.setuid(65534)",
    "chroot": "os.mkdir('jail'); os.chroot('jail'); os.chdir('/')",
    "nofile": "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
    "fsize": "sys.dont_write_bytecode = True; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))",
}


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root may become another user")
@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_program_that_gives_up_its_rights_runs_on_and_record_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    source = "import os, resource\n" + TRAIN.format(body=f"if number == 4: {body}") + "sys.exit(11)"
    # A Python that can open no more files cannot import what it has not imported yet.
    done = run(tmp_path, source, fresh="chroot" in body or "NOFILE" in body)

    assert (done.returncode, done.stdout) == (11, "over\n")
    assert ("no trace was found" if "chroot" in body else "the recording failed (") in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "tmp").glob("perftool-*")) == []


CLOSES = """
closed = range(3, 1000)
os.closerange(3, 1000)
mine = [os.open("/dev/null", os.O_RDONLY) for _ in closed]
"""


def test_a_program_that_closes_our_descriptors_keeps_its_own_and_its_exit_code(tmp_path: Path) -> None:
    source = "import os\n" + TRAIN.format(body="if number == 4: exec(CLOSES)").replace("CLOSES", repr(CLOSES))
    source += "print([one for one in mine if not os.path.sameopenfile(one, mine[0])])\nsys.exit(7)\n"
    done = run(tmp_path, source)

    assert (done.returncode, done.stdout) == (7, "over\n[]\n"), done.stderr
    assert "Traceback" not in done.stderr
    assert recorded(tmp_path) == STEPS


THREADS = """
import os, sys, threading, time, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad(); model(torch.ones(2, 4)).sum().backward(); optimizer.step()
def in_thread(work, *arguments):
    thread = threading.Thread(target=work, args=arguments)
    thread.start(); thread.join()
"""
# What the program does, its exit code, and how many recorded steps survive.
MOVES = {
    "main, then another": ("train(5); in_thread(train, 10); sys.exit(11)", 11, 2),
    "main, then another that ends the program": ("train(5); in_thread(os._exit, 7)", 7, None),
    "main, then one that stays": (
        "train(5); threading.Thread(target=lambda: (train(9), ready.set(), time.sleep(99)), daemon=True).start()\n"
        "ready.wait()",
        0,
        2,
    ),
    "a thread that ends": ("in_thread(train, 5); train(10); sys.exit(11)", 11, 2),
    "a thread that stays": (
        "threading.Thread(target=lambda: (train(5), ready.set(), time.sleep(99)), daemon=True).start(); ready.wait()",
        0,
        None,
    ),
    "one after the other": ("[in_thread(train, 1) for _ in range(20)]", 0, 0),
    "a first step elsewhere": ("train(1); in_thread(train, 10)", 0, 5),
}


@pytest.mark.parametrize(("body", "code", "steps"), MOVES.values(), ids=MOVES.keys())
def test_steps_may_move_to_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, code: int, steps: int | None
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    done = run(tmp_path, f"{THREADS}ready = threading.Event()\n{body}\n", "--program-exit-code")

    assert done.returncode == code, done.stderr
    assert list((tmp_path / "tmp").glob("perftool-*")) == []
    if steps is None:
        assert "nothing was recorded: the recording is lost: the program ended in a different thread" in done.stderr
    elif steps:
        assert len(recorded(tmp_path)) == steps, done.stderr


STOPS = """
import atexit, ctypes, multiprocessing, queue
from perftool.integrations.record import leaving
leaving._PATIENCE_S = 0.2
atexit.register(print, "handlers ran")
def wait(): queue.Queue().get()
def child(): multiprocessing.get_context("fork").Process(target=wait).start()
def stuck():
    mutex = (ctypes.c_char * 128)()
    while True:
        ctypes.CDLL(None).pthread_mutex_lock(mutex)
thread = threading.Thread(target=train, args=(10**9,))
"""
# What the program does while a thread trains without end, and whether its exit handlers run.
WAITS = {
    "for something": ("thread.start(); wait()", True),
    "for the thread": ("thread.start()", True),
    "for a child": ("child(); thread.start(); wait()", True),
    "for another thread": ("threading.Thread(target=wait).start(); thread.start()", True),
    "in native code": ("thread.start(); stuck()", False),
}


@pytest.mark.skipif(sys.platform != "linux", reason="fork and threads of Linux")
@pytest.mark.parametrize(("body", "handlers"), WAITS.values(), ids=WAITS.keys())
def test_stop_after_recording_ends_a_program_that_waits_while_a_thread_trains(
    tmp_path: Path, body: str, handlers: bool
) -> None:
    done = run(tmp_path, f"{THREADS}{STOPS}{body}\n", "--stop-after-recording")

    assert (done.returncode, done.stdout) == (0, "handlers ran\n" if handlers else ""), done.stderr
    assert ("ended it without running its exit handlers" in done.stderr) != handlers
    assert "Traceback" not in done.stderr
    assert len(recorded(tmp_path)) == 5


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_a_signal_after_the_recording_of_another_thread_loses_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, f"{THREADS}in_thread(train, 11)\nos.kill(os.getpid(), {signal.SIGTERM})\ntime.sleep(99)\n")

    assert done.returncode == 128 + signal.SIGTERM
    assert "habana_perf_tool: wrote perftool_record/" in done.stderr
    assert recorded(tmp_path) == STEPS


ACTORS = """
import os, threading, torch
from torch import multiprocessing
fork = multiprocessing.get_context("fork")
model, sample = torch.nn.Linear(4, 4), torch.ones(2, 4)
def train(steps):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        received.get()
        model(sample).sum().backward(); optimizer.step()
def act(calls, started):
    with torch.no_grad():
        for call in range(calls):
            model(sample)
            received.put(call)
            if call == 0:
                started.wait()
received, started = fork.SimpleQueue(), fork.Event()
"""
LEARNER = """
actor = fork.Process(target=act, args=(20, started))
actor.start()
received.get()
made = torch.optim.SGD(model.parameters(), 0.1)
started.set()
learner = threading.Thread(target=train, args=(19,))
learner.start(); learner.join()
actor.join()
print(actor.exitcode)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(("options", "printed"), [((), "0\n"), (("--stop-after-recording",), "")], ids=["all", "stop"])
def test_actors_without_an_optimizer_are_not_recorded_beside_a_learner(
    tmp_path: Path, options: tuple[str, ...], printed: str
) -> None:
    """The actors were recorded, and ended after that, so the learner waited for them forever."""
    done = run(tmp_path, ACTORS + LEARNER, *options)

    assert (done.returncode, done.stdout) == (0, printed), done.stderr
    assert recorded(tmp_path) == STEPS


HELPER = """
started.set()
helper = fork.Process(target=act, args=(20, started))
helper.start()
print([received.get() for _ in range(20)][-1])
helper.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_without_an_optimizer_is_recorded_and_runs_on(tmp_path: Path) -> None:
    """If the child ended after its recording, its parent would wait forever for its results."""
    done = run(tmp_path, ACTORS + HELPER, "--stop-after-recording")

    assert (done.returncode, done.stdout) == (0, "19\n"), done.stderr
    assert len(recorded(tmp_path)) == 5


PARALLEL = """
def rank(number):
    for call in range(99):
        received.put(call)
    train(99)
received = __import__("queue").Queue()
ranks = [fork.Process(target=rank, args=(number,)) for number in range(2)]
[one.start() for one in ranks]
[one.join() for one in ranks]
print([one.exitcode for one in ranks], "over")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_children_with_optimizers_of_their_own_are_recorded_and_end(tmp_path: Path) -> None:
    done = run(tmp_path, ACTORS + PARALLEL, "--stop-after-recording")

    assert (done.returncode, done.stdout) == (0, "[0, 0] over\n"), done.stderr
    assert len(list(tmp_path.glob("perftool_record/*/*.pt.trace.json.gz"))) == 2


LATE = """
made = fork.Event()
def other_trains():
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    made.set()
    received.get()
other = fork.Process(target=other_trains)
for call in range(4):
    model(sample)
    if call == 1:
        other.start(); made.wait()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(11):
    model(sample).sum().backward(); optimizer.step()
received.put(None); other.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_rank_that_creates_its_optimizer_later_than_others_is_recorded(tmp_path: Path) -> None:
    """The rank's first calls to the model nearly start a recording, although they may only inspect the model."""
    done = run(tmp_path, ACTORS + LATE)

    assert done.returncode == 0, done.stderr
    assert recorded(tmp_path) == STEPS


def test_only_a_running_process_with_an_optimizer_hides_this_one(tmp_path: Path) -> None:
    plan = Plan(str(tmp_path), str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for name in (str(ended.pid), "x", "9" * 30):
        (tmp_path / f"{name}.optimizer").touch()
    assert not plan.only_others_train()
    (tmp_path / f"{os.getppid()}.optimizer").touch()
    assert plan.only_others_train()
    plan.optimizer_made()
    assert not plan.only_others_train()


@pytest.mark.parametrize(
    ("left", "code", "sentence"),
    [
        ([], 2, "the program ended with exit code 2 before it imported PyTorch"),
        ([Note("ready")], 1, "the program ended with exit code 1 before the end of its first step"),
        (
            [Note("ready")],
            143,
            "before the end of its first step; if one call to the optimizer runs the whole training",
        ),
        ([Note("ready")], 0, "no step was found"),
        ([Note("ready"), Note("ready", "x")], 130, "x; the program was killed by SIGINT"),
        (
            [Note("ready"), Note("recording")],
            137,
            "no trace was saved: the program was killed by SIGKILL during the recording",
        ),
        ([Note("stranger", "python cannot import the recorder (x)")], 0, "install habana_perf_tool for that Python"),
        ([Note("explained", "the recording failed (OSError: x)")], 0, "nothing was recorded: the recording failed"),
        ([Note("recording"), Note("saved", "it took 5 s", "/gone")], 0, "no trace was found: the program has moved"),
    ],
)
def test_the_reason_why_nothing_was_recorded_is_given(left: list[Note], code: int, sentence: str) -> None:
    assert sentence in why_nothing(left, code)


def test_a_sitecustomize_of_the_system_still_runs(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import builtins\nbuiltins.theirs = 'ran'\nmine = 1\n")
    env = Plan(str(tmp_path), str(tmp_path)).environment({**os.environ, "PYTHONPATH": str(tmp_path / "site")})
    code = "import sys, sitecustomize; print(theirs, any('record' in at for at in sys.path), sitecustomize.mine)"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)

    assert done.stdout == "ran False 1\n"


def test_any_version_of_python_can_read_the_hook() -> None:
    """The program may start an old Python, whose output should stay the same."""
    nodes = list(ast.walk(ast.parse((plan_module._HOOK / "sitecustomize.py").read_text(encoding="ascii"))))
    assert not [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AnnAssign | ast.JoinedStr)]
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert imported == {"os", "sys", "perftool_hook", "sitecustomize"}
    assert not [node for node in nodes if isinstance(node, ast.ImportFrom)]


def test_a_plan_survives_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(str(tmp_path), str(tmp_path), wait=4, steps_from="loader", stop_after=True)
    monkeypatch.setenv(VARIABLE, plan.environment({})[VARIABLE])

    assert plan_here() == plan
