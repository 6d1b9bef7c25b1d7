"""Plays scenes from the life of a team that lints the trace of its nightly job:
``python examples/life_of_a_team.py [--again N]``.

Every trace is recorded during the play by torch.profiler, on the CPU and in a separate process, under the name that
PyTorch gives it. The exit code is 1 if an act does not end as expected.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TRACES = "traces"
BASELINE = "accepted.json"
SLEEP_S = 0.03
MISSING = "Recording needs PyTorch; the extra `bench` installs it: pip install 'habana-perf-tool[bench]'."


@dataclass(frozen=True)
class Act:
    """One thing that the team does, and its expected end.

    ``options`` are those of ``lint``. Before each of the ``times`` calls, the job runs with a transform that sleeps for
    ``sleep_s``; if that is None, the last trace is kept. A line of the output must start with ``shows``.
    """

    title: str
    options: tuple[str, ...]
    exit_code: int
    shows: str
    sleep_s: float | None = None
    times: int = 1


@dataclass(frozen=True)
class Ending:
    """How a call of ``lint`` ended."""

    exit_code: int
    lines: tuple[str, ...]

    def line(self, beginning: str) -> str | None:
        return next((line for line in self.lines if line.startswith(beginning)), None)


def acts(again: int) -> tuple[Act, ...]:
    """The acts of the play; ``again`` says how often the accepted code is recorded again."""
    passed, accepted = "All checks passed!", "All checks passed! (1 suppressed)"
    annotation = "::warning title=habana_perf_tool (GAP102)"
    baseline = ("--baseline", BASELINE)
    return (
        Act("a clean run", (), 0, passed, sleep_s=0.0),
        Act("a slow loader", ("--output-format", "github"), 1, annotation, SLEEP_S),
        Act("accept it", ("--write-baseline", BASELINE), 0, accepted),
        Act("check that", baseline, 0, accepted),
        Act("record again", baseline, 0, accepted, SLEEP_S, again),
        Act("fix it", baseline, 0, "stale baseline entry: GAP102", sleep_s=0.0),
    )


def record(folder: Path, sleep_s: float) -> None:
    """Train with a loader whose transform sleeps for ``sleep_s``; write the trace of 5 steps to ``folder``."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # silences the profiler
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler
    from torch.utils.data import DataLoader

    def transform(batch: torch.Tensor) -> torch.Tensor:
        time.sleep(sleep_s)
        return batch - 0.5

    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 1024))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    batches = DataLoader(torch.rand(8, 256, 1024), batch_size=None, collate_fn=transform)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=2, active=5, repeat=1),
        on_trace_ready=tensorboard_trace_handler(str(folder)),
    ) as profiler:
        for batch in batches:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(batch), batch).backward()
            optimizer.step()
            profiler.step()


def lint(options: Sequence[str], project: Path) -> Ending:
    """Lint the traces of ``project``, as a CI job would."""
    # With this path, the checkout does not have to be installed.
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "perftool", "lint", TRACES, *options]
    done = subprocess.run(
        command, cwd=project, env={**os.environ, "PYTHONPATH": path}, capture_output=True, encoding="utf-8"
    )
    return Ending(done.returncode, tuple((done.stdout + done.stderr).splitlines()))


def repeat(act: Act, project: Path) -> list[Ending]:
    """Record a run, if the act has a run, and lint it; do both ``act.times`` times."""
    endings = []
    for _ in range(act.times):
        if act.sleep_s is not None:
            run_job(project / TRACES, act.sleep_s)
        endings.append(lint(act.options, project))
    return endings


def run_job(folder: Path, sleep_s: float) -> None:
    """Replace the contents of ``folder`` with the trace of a new run."""
    shutil.rmtree(folder, ignore_errors=True)
    job = get_context("spawn").Process(target=record, args=(folder, sleep_s))
    job.start()
    job.join()


def play(act: Act, project: Path) -> bool:
    """Play ``act``, print one line about its end, and return whether it ended as expected."""
    endings = repeat(act, project)
    wrong = [each for each in endings if each.exit_code != act.exit_code or each.line(act.shows) is None]
    end = (wrong or endings)[0]
    # Only the first line of an annotation is shown; the advice follows it.
    shown = (end.line(act.shows) or " | ".join(end.lines)).split("%0A")[0]
    times = f", {len(endings) - len(wrong)} of {act.times} times" if act.times > 1 else ""
    command = " ".join(("perftool lint", TRACES, *act.options))
    print(f"{act.title}: {command} -> {'WRONG: ' if wrong else ''}exit {end.exit_code}{times}: {shown}", flush=True)
    return not wrong


def main() -> int:
    """Play all acts. Return 0 if all ended as expected, 1 if an act did not, and 2 if PyTorch is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--again", type=int, default=10, choices=range(1, 101), metavar="N",
        help="record the accepted code N times (default: 10)",
    )  # fmt: skip
    again = parser.parse_args().again
    if importlib.util.find_spec("torch") is None:
        print(MISSING, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        ended = [play(act, Path(folder)) for act in acts(again)]
    return 0 if all(ended) else 1


if __name__ == "__main__":
    sys.exit(main())
