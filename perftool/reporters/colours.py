"""The colour of each kind of time or memory, for light and dark backgrounds. Based on the palette of Okabe and Ito,
which colour-blind readers can distinguish.
"""

from __future__ import annotations

COLOURS: dict[str, tuple[str, str]] = {
    "kernel": ("#2d6fb3", "#4f94d8"),
    "tpc": ("#56a9d6", "#7cc4ea"),
    "collective": ("#b8639b", "#d585b8"),
    "copy": ("#e08e00", "#eda632"),
    "fill": ("#b9a53a", "#d2c062"),
    "runtime": ("#cc5a2e", "#e57a50"),
    "latency": ("#c2805f", "#ad6e54"),
    "data": ("#16886a", "#34ab8a"),
    "op": ("#7fb4d8", "#6f9fc4"),
    "compile": ("#6d4fa3", "#a288d6"),
    "graph": ("#8a7a1f", "#b9a84a"),
    "fallback": ("#a3324b", "#d5637c"),
    "optimizer": ("#237a92", "#439eb5"),
    "python": ("#5f7283", "#8194a6"),
    "queued": ("#7f8fb5", "#8a9ac2"),
    "other": ("#b3b9c0", "#5a636e"),
}
_KINDS: dict[str, str] = {
    "kernel": "kernel", "MME": "kernel", "compute": "kernel", "TPC": "tpc",
    "collective": "collective", "communication": "collective", "NIC": "collective",
    "memcpy": "copy", "copy": "copy", "DMA": "copy", "PDMA": "copy", "memset": "fill",
    "runtime": "runtime", "sync": "runtime", "launch_call": "runtime", "launch_latency": "latency",
    "dataloader": "data", "cpu_op": "op", "framework_op": "op", "autograd": "op", "compile": "compile",
    "graph_build": "graph", "fallback": "fallback", "optimizer": "optimizer", "queued": "queued", "python": "python",
    "host": "python", "delay": "latency", "beside": "data",
    "activations": "kernel", "parameters": "tpc", "gradients": "collective", "optimizer_state": "optimizer",
    "inputs": "data", "workspace": "copy", "temporary": "fill", "kept": "runtime", "before_recording": "python",
}  # fmt: skip


def colour(kind: str, *, dark: bool = False) -> str:
    """Return the colour of ``kind`` as ``#rrggbb``; unknown kinds get the colour ``other``."""
    return COLOURS[_KINDS.get(kind, "other")][dark]


def style_sheet() -> str:
    """Write the colours as CSS: a variable for each colour, and for each kind a class ``k-KIND`` that sets ``--c``."""
    variables = "".join(f"--{name}:light-dark({light},{dark});" for name, (light, dark) in COLOURS.items())
    classes = "".join(f".k-{kind.replace('_', '-')}{{--c:var(--{name})}}" for kind, name in _KINDS.items())
    return f":root{{{variables}}}{classes}"
