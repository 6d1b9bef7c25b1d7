"""Readable labels for parts of a step, device work, causes of idle time and activities of host threads."""

from __future__ import annotations

import re

KIND_LABELS = {
    "kernel": "kernels", "MME": "MME", "TPC": "TPC", "NIC": "NIC", "memcpy": "copies", "memset": "fills",
    "collective": "collectives", "communication": "collectives", "runtime": "runtime calls",
    "dataloader": "waiting for data", "cpu_op": "framework ops", "other": "other",
    "compile": "compiling", "fallback": "CPU fallback", "sync": "host waits for device", "copy": "copying",
    "graph_build": "building graphs", "launch_latency": "launch latency", "queued": "work queued, not started",
    "optimizer": "optimizer on the host", "launch_call": "submitting work", "framework_op": "framework ops",
    "python": "Python", "capture": "capturing a graph", "profiler": "the profiler itself",
    "queue": "waiting for a queue", "pipe": "waiting for a pipe or socket", "lock": "waiting for a lock",
    "checkpoint": "saving checkpoints", "sleep": "sleeping", "blocked": "Python, mostly blocked",
    "no_core": "Python or ops, or no free core", "host": "host",
    "delay": "delays",
    "beside": "concurrent work", "start_up": "start-up", "unknown": "nothing recorded",
    "before_recording": "before the recording", "undecided": "unknown use",
}  # fmt: skip

_STEP = re.compile(r"(?<![.\w])(?:(?P<article>[Aa]) )?(?:training )?(?P<first>[Ss])tep(?P<plural>s?)\b(?!\()")


def kind_label(kind: str) -> str:
    """Return the label of a kind of work or of a cause. An unknown name is shown with spaces instead of underscores."""
    return KIND_LABELS.get(kind, kind.replace("_", " "))


def of_steps(text: str, word: str) -> str:
    """Replace "step" in ``text`` with ``word``, the run's word for a step (``step`` or ``iteration``)."""
    return text if word == "step" else _STEP.sub(lambda found: _renamed(found, word), text)


def _renamed(found: re.Match[str], word: str) -> str:
    named = word.capitalize() if found["first"] == "S" else word
    article = f"{found['article']}n " if found["article"] else ""
    return f"{article}{named}{found['plural']}"
