"""What people read for parts of a step, device work, causes of idle time and what host threads do."""

from __future__ import annotations

# One word means one thing everywhere.
KIND_LABELS = {
    "kernel": "kernels", "MME": "MME", "TPC": "TPC", "NIC": "NIC", "memcpy": "copies", "memset": "fills",
    "collective": "collectives", "communication": "collectives", "runtime": "runtime calls",
    "dataloader": "waiting for data", "cpu_op": "framework ops", "other": "other",
    "compile": "compiling", "fallback": "CPU fallback", "sync": "host waits for device", "copy": "copying",
    "graph_build": "building graphs", "launch_latency": "launch latency", "queued": "work queued, not started",
    "optimizer": "optimizer on the host", "launch_call": "submitting work", "framework_op": "framework ops",
    "python": "Python", "host": "host", "delay": "delays",
    "beside": "what runs beside the steps", "start_up": "start-up", "unknown": "unknown",
}  # fmt: skip


def kind_label(kind: str) -> str:
    """What to call a kind of work or a cause; names that nobody foresaw are shown as they are."""
    return KIND_LABELS.get(kind, kind.replace("_", " "))
