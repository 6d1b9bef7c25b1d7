"""Records a few training steps with torch.profiler on the CPU and writes a small trace that can be published."""

from __future__ import annotations

import gzip
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

FOLDER = Path(__file__).resolve().parents[1] / "cpu"
MAX_BYTES = 150_000

# Folders reveal how someone's machine is set up, so only the file name stays. The names of Python functions
# are relative to the import path already.
_FOLDERS = re.compile(r"(?<![\w.\-<>/])/(?:[\w.+\-@~]+/)+")
_HOST = re.compile(r'("host_name":\s*)"[^"]*"')


def record(
    name: str,
    step: Callable[[int], object],
    steps: int = 4,
    warm_up: int = 3,
    with_stack: bool = False,
    record_shapes: bool = True,
) -> Path:
    """Call ``step`` with 0, 1, ... and record the last ``steps`` calls as ``cpu/<name>.json.gz``.

    The first two calls run unobserved and ``warm_up`` more with the profiler already running, so that the
    recording shows the steady state. Returns the file; raises ValueError when it is too large to be shipped.
    """
    target = FOLDER / f"{name}.json.gz"
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / target.stem
        with profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=2, warmup=warm_up, active=steps, repeat=1),
            on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(raw)),
            with_stack=with_stack,
            record_shapes=record_shapes,
        ) as profiler:
            for index in range(2 + warm_up + steps):
                step(index)
                profiler.step()
        write_shareable(raw, target)
    return target


def write_shareable(raw: Path, target: Path) -> None:
    """Copy the trace ``raw`` to the gzip file ``target`` without absolute paths and host name.

    The layout of the text stays as the profiler wrote it, and the same text gives the same bytes.
    """
    text = anonymous(raw.read_text(encoding="utf-8"))
    packed = gzip.compress(text.encode(), compresslevel=9, mtime=0)
    if len(packed) > MAX_BYTES:
        raise ValueError(f"{target.name}: {len(packed)} bytes, more than the {MAX_BYTES} of a sample")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(packed)


def anonymous(text: str) -> str:
    """``text`` without the name of the host and without absolute paths."""
    return _FOLDERS.sub("", _HOST.sub(r'\1"host"', text))


def set_up(seed: int = 0) -> None:
    """One compute thread and a fixed seed: the recording should show the program, not the machine."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
