"""Fifty ways to end a recorded training run, each of which must leave a readable recording. The training is ordinary: a
loader, checkpoints every few steps, a log, mixed precision and gradient clipping. It runs under ``record``, with its
own ``torch.profiler``, in Lightning's Trainer, in Hugging Face's Trainer, and on two processes of torchrun. It ends in
the fifth recorded step or earlier.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("torch")

import perftool

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="signals and limits of POSIX")]

TROUBLE = """
import logging, os, resource, signal, sys, time
import torch
logging.basicConfig(level=logging.INFO)
kind = sys.argv[1]
number = 0

def step_is_over(save):
    # Once a step: write checkpoints and logs, then cause the trouble.
    global number
    number += 1
    logging.info("step %d", number)
    if number % 3 == 2:
        save(f"checkpoint-{os.environ.get('RANK', '0')}.pt")
    if number == 6 and not (kind.startswith("one-") and os.environ.get("RANK") == "0"):
        trouble(kind.removeprefix("one-"))

def trouble(kind):
    if kind == "crash":
        raise RuntimeError("the program's own bug")
    if kind == "exit":
        sys.exit(9)
    if kind == "_exit":
        os._exit(9)
    if kind == "abort":
        os.abort()
    if kind == "exec":
        os.execlp("true", "true")
    if kind == "launcher":
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(30)
    if kind.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, kind))
        time.sleep(30)
    if kind == "limit":
        # With the limit on file sizes, Python would write cut-off compiled modules, which no process could load.
        sys.dont_write_bytecode = True
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
    if kind == "fork":
        if (child := os.fork()) == 0:
            torch.ones(4) + 1
            # A child with a gloo process group hangs in its destructor, recorded or not.
            os._exit(0) if torch.distributed.is_initialized() else sys.exit(0)
        os.waitpid(child, 0)
    if kind == "fork-exec":
        os.system("true")
    if kind == "workers":
        for _ in torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=2, num_workers=1):
            pass
    if kind == "find":
        import importlib.util
        importlib.util.find_spec("torch")
"""
LOOP = """
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
{wrap}
optimizer = torch.optim.AdamW(model.parameters())
rows = [(torch.randn(16), torch.tensor(at % 4)) for at in range(44)]
for x, y in torch.utils.data.DataLoader(rows, batch_size=4):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    step_is_over(lambda path: torch.save({{"model": model.state_dict(), "optimizer": optimizer.state_dict()}}, path))
    {then}
"""
PLAIN = TROUBLE + LOOP.format(wrap="", then="")
OWN = TROUBLE + LOOP.format(
    wrap='profiler = torch.profiler.profile(schedule=torch.profiler.schedule(wait=1, warmup=1, active=20),'
    ' on_trace_ready=torch.profiler.tensorboard_trace_handler("perftool_record"))\nprofiler.start()',
    then="profiler.step()",
)  # fmt: skip
EXPORTED = TROUBLE + LOOP.format(wrap="profiler = torch.profiler.profile(); profiler.start()", then="") + (
    'profiler.stop()\nprofiler.export_chrome_trace("perftool_record/own.json")\n'
)  # fmt: skip
BLOCK = TROUBLE + "import perftool\nwith perftool.profile('perftool_record', quiet=True) as profiler:\n" + "\n".join(
    f"    {line}" for line in LOOP.format(wrap="", then="profiler.step()").splitlines()
)  # fmt: skip
TORCHRUN = TROUBLE + (
    "torch.distributed.init_process_group('gloo')\n"
    + LOOP.format(wrap="model = torch.nn.parallel.DistributedDataParallel(model)", then="")
    + "torch.distributed.destroy_process_group()\n"
)
LIGHTNING = (
    TROUBLE
    + """
import pytorch_lightning as pl
from perftool.integrations.lightning import HPUProfiler

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(16, 4)
    def training_step(self, batch, index):
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())
    def on_train_batch_end(self, *_):
        step_is_over(self.trainer.save_checkpoint)

rows = [(torch.randn(16), torch.tensor(at % 4)) for at in range(44)]
profiler = HPUProfiler(dirpath="perftool_record", report=False)
trainer = pl.Trainer(max_epochs=1, accelerator="cpu", profiler=profiler, precision="bf16-mixed", gradient_clip_val=1.0,
                     logger=False, enable_progress_bar=False, enable_checkpointing=False)
trainer.fit(Net(), torch.utils.data.DataLoader(rows, batch_size=4))
"""
)
TRAINER = (
    TROUBLE
    + """
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments
from perftool.integrations.huggingface import ProfileCallback

class Troubled(TrainerCallback):
    def on_step_end(self, args, state, control, **others):
        step_is_over(lambda path: torch.save(others["model"].state_dict(), path))

small = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, vocab_size=9)
data = [{"input_ids": torch.ones(4, dtype=torch.long), "labels": 1} for _ in range(44)]
arguments = TrainingArguments("out", max_steps=10, per_device_train_batch_size=2, report_to=[], save_strategy="steps",
                              save_steps=4, use_cpu=True, bf16=True, disable_tqdm=True)
Trainer(BertForSequenceClassification(BertConfig(**small)), arguments, train_dataset=data,
        callbacks=[ProfileCallback("perftool_record", quiet=True), Troubled()]).train()
"""
)
RECORD = [sys.executable, "-m", "perftool", "record", "--no-report", "--"]
RUN = [sys.executable]
TWO = [*RECORD, sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
SCRIPTS = {
    "plain": (PLAIN, [*RECORD, sys.executable]),
    "own-profiler": (OWN, [*RECORD, sys.executable]),
    "own-export": (EXPORTED, [*RECORD, sys.executable]),
    "perftool.profile": (BLOCK, RUN),
    "lightning": (LIGHTNING, RUN),
    "trainer": (TRAINER, RUN),
    "torchrun": (TORCHRUN, TWO),
}
ENDINGS = {
    "plain": "none crash exit _exit abort exec SIGINT SIGTERM SIGHUP SIGUSR1 limit full fork fork-exec workers find",
    "own-profiler": "none crash _exit SIGINT SIGTERM full fork",
    "own-export": "none crash _exit SIGTERM",
    "perftool.profile": "none crash _exit SIGINT SIGTERM full fork",
    "lightning": "none crash _exit SIGINT SIGTERM full fork",
    "trainer": "none crash _exit SIGINT SIGTERM full fork",
    "torchrun": "none crash one-crash one-_exit one-launcher SIGTERM full fork",
}
RUNS = [(script, ending) for script, endings in ENDINGS.items() for ending in endings.split()]


@contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """Create ``folder`` on a disk that is too small for a trace."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("needs the right to mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def hear_every_signal() -> None:
    """Restore the default handlers, because nohup and shells that run the tests in the background ignore some
    signals.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def traces(*folders: Path) -> list[Path]:
    return [path for folder in folders for path in sorted(folder.rglob("*.json*")) if path.suffix in (".json", ".gz")]


@pytest.mark.parametrize(("script", "ending"), RUNS, ids=["-".join(run) for run in RUNS])
def test_every_ending_leaves_a_recording(tmp_path: Path, script: str, ending: str) -> None:
    if script in ("lightning", "trainer"):
        pytest.importorskip({"lightning": "pytorch_lightning", "trainer": "transformers"}[script])
    source, command = SCRIPTS[script]
    (tmp_path / "script.py").write_text(source)
    (tmp_path / "tmp").mkdir()
    home = tmp_path / "perftool_record"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path / "tmp")}
    environment["PYTHONPATH"] = str(Path(perftool.__file__).parents[1])
    if script == "own-export":
        home.mkdir()

    def run() -> subprocess.CompletedProcess[str]:
        whole = [*command, "script.py", ending]
        return subprocess.run(
            whole, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180, check=False,
            preexec_fn=hear_every_signal,
        )  # fmt: skip

    if ending == "full":
        with full_disk(home):
            done = run()
            found = traces(home, tmp_path / "tmp")
            steps = [len(perftool.analyze(path).steps) for path in found]
    else:
        done = run()
        found = traces(home, tmp_path / "tmp")
        steps = [len(perftool.analyze(path).steps) for path in found]

    assert len(found) == (2 if script == "torchrun" else 1), (found, done.stderr[-3000:])
    # If the file size is limited, the file contains the start of the recording.
    assert min(steps) >= 1, done.stderr[-3000:]
    assert "Traceback" not in done.stderr or "crash" in ending or ending == "SIGINT" or script == "torchrun"
    if ending in ("none", "fork", "find", "workers", "full", "fork-exec"):
        assert done.returncode == 0, done.stderr[-3000:]
    else:
        assert (done.returncode != 0) == (ending not in ("exec", "limit"))
    warnings.warn(f"{script} {ending}: exit code {done.returncode}, {steps} steps", stacklevel=1)
