"""The native profiler's CSV yields the same tables as a JSON trace."""

from __future__ import annotations

from pathlib import Path

from perftool.store.trace_store import TraceStore

HEADER = (
    "Name,Trace Source,Engine,Event type,Timestamp[usec],recipeHandle,streamHandle,Recipe ID,Recipe name,"
    "Context ID,Device,Operation,Data Type,HW Event port,HW Event description"
)


def row(kind: str, ts: str, engine: str, operation: str, context: str) -> str:
    return f"node,HW,{engine},{kind},{ts},0x55,0xd9,7,g_1,{context},accel0,{operation},bf16,1,"


def test_engines_kinds_and_exact_times(tmp_path: Path) -> None:
    path = tmp_path / "profile_1.csv"
    rows = [
        row("BEGIN", "1000.250", "[HD0] MME", "GEMM", "1"),
        row("END", "1010.251", "[HD0] MME", "GEMM", "1"),
        row("BEGIN", "1005.000", "[HD0] TPC 5", "relu_fwd_bf16", "2"),
        row("END", "1020.000", "[HD0] TPC 5", "relu_fwd_bf16", "2"),
        row("BEGIN", "1021.000", "PDMA 0", "copy", "3"),
        row("END", "1022.000", "PDMA 0", "copy", "3"),
    ]
    path.write_text("\n".join((HEADER, *rows)) + "\n")

    with TraceStore() as store:
        added = store.add_trace(str(path))
        found = [
            (r["name"], r["kind"], r["engine"], r["ts"], r["dur"], r["dtype"], r["recipe"])
            for r in sorted(store.rows("device_ops"), key=lambda r: r["ts"])
        ]

    assert (added.kind, added.status, added.events) == ("trace", "ok", 3)
    assert found == [
        ("GEMM", "kernel", "MME", 1_000_250, 10_001, "bf16", 7),
        ("relu_fwd_bf16", "kernel", "TPC", 1_005_000, 15_000, "bf16", 7),
        ("copy", "memcpy", "PDMA", 1_021_000, 1_000, "bf16", 7),
    ]
