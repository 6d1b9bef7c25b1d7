"""``record``: programs run as they are, a few steps of theirs are recorded, and nothing of theirs changes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

import perftool
from perftool.engine.gate.lint import LintPlan, lint_inputs
from perftool.engine.rules.pack import builtin_folder, load_pack
from perftool.engine.settings.settings import Settings
from perftool.integrations.call_lines import Calls, with_calls
from perftool.integrations.record.plan import VARIABLE, Plan, plan_here
from perftool.readers.files.discover import find_inputs
from perftool.reporters.lint.sarif import render_sarif

TRAIN = """
import sys, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for number in range(9):
    optimizer.zero_grad(); model(torch.ones(2, 4)).sum().backward(); optimizer.step()
    {body}
print("over")
"""
GAN = """
import torch
first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in (first, second)]
for _ in range(9):
    for model, optimizer in zip((first, second), optimizers):
        model(torch.ones(2, 4)).sum().backward(); optimizer.step()
"""
LOADER = """
import torch
for batch in torch.utils.data.DataLoader(torch.ones(18, 4), batch_size=2):
    batch.sum()
"""
FORWARD = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
for _ in range(9):
    model(torch.ones(2, 4))
"""
OWN = """
import torch
with torch.profiler.profile() as mine:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], 0.1)
    for _ in range(9):
        optimizer.step(); mine.step()
print(len(mine.key_averages()) > 0)
"""


STEPS = ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]


def run(folder: Path, source: str, *options: str, report: bool = False) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(source)
    command = [sys.executable, "-m", "perftool", "record", *([] if report else ["--no-report"]), *options]
    return subprocess.run([*command, "--", sys.executable, "script.py"], cwd=folder, capture_output=True, text=True)


def recorded(folder: Path) -> list[str]:
    [trace] = (folder / "perftool_record").glob("*.pt.trace.json.gz")
    return [step.name for step in perftool.analyze(str(trace)).steps if not step.partial]


@pytest.mark.parametrize("source", [GAN, LOADER, FORWARD], ids=["gan", "loader", "forward"])
def test_the_steps_of_a_program_are_found(tmp_path: Path, source: str) -> None:
    done = run(tmp_path, source)

    assert done.returncode == 0
    assert "habana_perf_tool: wrote" in done.stderr
    assert recorded(tmp_path) == STEPS


def test_the_report_follows_the_output_of_the_program(tmp_path: Path) -> None:
    done = run(tmp_path, TRAIN.format(body="pass"), report=True)

    assert done.stdout.startswith("over\n")
    assert ".pt.trace   cpu" in done.stdout
    assert recorded(tmp_path) == STEPS


@pytest.mark.parametrize(
    ("body", "code", "last_line"),
    [
        ("sys.exit(7) if number == 8 else None", 7, None),
        ("assert number < 8, 'my own words'", 1, "AssertionError: my own words"),
    ],
)
def test_exit_codes_and_exceptions_stay_the_programs(
    tmp_path: Path, body: str, code: int, last_line: str | None
) -> None:
    done = run(tmp_path, TRAIN.format(body=body))

    assert done.returncode == code
    assert last_line is None or last_line in done.stderr.splitlines()
    assert len(recorded(tmp_path)) == 3


EXAMPLE = Path(__file__).parents[2] / "examples" / "slow_training.py"


def test_findings_stand_at_the_lines_that_cause_them(tmp_path: Path) -> None:
    """The wait for a loader, slow Python and an unfused optimizer; reading a scalar costs nothing on the CPU."""
    done = run(tmp_path, EXAMPLE.read_text())
    assert done.returncode == 0
    [trace] = (tmp_path / "perftool_record").iterdir()
    plan = LintPlan(load_pack(builtin_folder()), Settings(), tmp_path)

    log = json.loads(render_sarif(lint_inputs(find_inputs([str(trace)]), plan)))

    results = log["runs"][0]["results"]
    text = (tmp_path / "script.py").read_text().splitlines()
    places = {
        result["ruleId"]: (place["artifactLocation"]["uri"], text[place["region"]["startLine"] - 1].strip())
        for result in results
        for place in [result["locations"][0]["physicalLocation"]]
    }
    assert places["GAP102"] == ("script.py", "time.sleep(0.002)  # 1: the training waits for this")
    assert places["GAP108"] == ("script.py", "def clean(texts):")
    assert places["FUS101"] == ("script.py", "optimizer.step()  # 3: parameter by parameter")


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
data = torch.utils.data.DataLoader(torch.ones(18, 4), batch_size=2)
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False)
pl.Trainer(max_epochs=1, accelerator="cpu", **quiet).fit(Net(), data)
""",
    "transformers": """
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
small = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, vocab_size=9)
model = BertForSequenceClassification(BertConfig(**small))
data = [{"input_ids": torch.ones(4, dtype=torch.long), "labels": 1} for _ in range(32)]
arguments = TrainingArguments("out", max_steps=9, per_device_train_batch_size=2, gradient_accumulation_steps=2,
                              report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True)
Trainer(model, arguments, train_dataset=data).train()
""",
    "accelerate": """
import torch
from accelerate import Accelerator
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = torch.nn.Linear(4, 4)
data = torch.utils.data.DataLoader(torch.ones(36, 4), batch_size=2)
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
for _ in range(9):
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
for _ in range(9):
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
    names = [path.name.split(".")[0] for path in sorted((tmp_path / "perftool_record").iterdir())]
    assert names == ["rank0", "rank1"]


def test_the_lines_of_calls_go_where_pytorch_writes_the_functions() -> None:
    text = [
        '    "baseTimeNanoseconds": 1000000,\n',
        '    "ts": 5.250,\n', '      "Python parent id": null, "Python id": 1\n',
        '    "ts": 6.000,\n', '      "Python parent id": 1, "Python id": 2\n',
        '    "ts": 6.000,\n', '      "External id": 1\n',
    ]  # fmt: skip

    made = list(with_calls(text, Calls({1_006_000: 43}, {"transformers"})))

    assert made == ['    "perftoolInstalled": ["transformers"],\n', *text[:4], '      "Call line": 43,\n', *text[4:]]


def test_a_program_with_a_profiler_of_its_own_keeps_it(tmp_path: Path) -> None:
    done = run(tmp_path, OWN)

    assert (done.returncode, done.stdout) == (0, "True\n")
    assert "the program uses torch.profiler itself: record steps aside" in done.stderr
    assert not (tmp_path / "perftool_record").exists()


def test_a_program_that_ends_too_early_is_told(tmp_path: Path) -> None:
    done = run(tmp_path, TRAIN.format(body="pass"), "--wait", "20")

    assert done.returncode == 0
    assert "the program ended after 9 steps, and recording begins after 22" in done.stderr


def test_without_pytorch_nothing_happens_and_that_is_said(tmp_path: Path) -> None:
    done = run(tmp_path, "print('hello')")

    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert "no step was found in the program" in done.stderr


def test_the_program_ends_when_it_is_recorded_if_that_is_asked_for(tmp_path: Path) -> None:
    done = run(tmp_path, TRAIN.format(body="pass"), "--stop-after-recording")

    assert (done.returncode, done.stdout) == (0, "")
    assert len(recorded(tmp_path)) == 3


def test_a_program_that_cannot_be_run_is_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "perftool", "record", "--", "no-such-program"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "habana_perf_tool: no-such-program: cannot be run (No such file or directory)\n"


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_signal_reaches_the_program(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "print('ready', flush=True)\ntime.sleep(60)\n"
    )
    command = [sys.executable, "-m", "perftool", "record", "-q", "--", sys.executable, "script.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)  # the parent installs its handlers right after the start
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 9


def test_a_sitecustomize_of_the_system_still_runs(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import builtins\nbuiltins.theirs = 'ran'\n")
    env = Plan(str(tmp_path), str(tmp_path)).environment({**os.environ, "PYTHONPATH": str(tmp_path / "site")})
    code = "import sys; print(theirs, any('record' in place for place in sys.path))"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)

    assert done.stdout == "ran False\n"


def test_a_plan_survives_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(str(tmp_path), str(tmp_path), wait=4, steps_from="loader", stop_after=True)
    monkeypatch.setenv(VARIABLE, plan.environment({})[VARIABLE])

    assert plan_here() == plan
