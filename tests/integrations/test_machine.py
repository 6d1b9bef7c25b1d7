"""What recordings hold about the machine."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch")

from perftool.integrations.machine import Watch  # noqa: E402


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports the resident memory")
def test_memory_that_is_freed_and_provided_again_counts_but_does_not_grow() -> None:
    """Transparent huge pages make fewer faults, so only their presence is checked."""
    size, times = 64 << 20, 4
    torch.ones(size // 4)
    watch = Watch(None)
    watch.begin()
    for _ in range(times):
        torch.ones(size // 4)
    watch.end()

    window = watch.facts()["window"]
    assert window["page_faults"] > 0
    assert 0 < window["system_ns"] <= window["cpu_ns"] + 10**7
    assert window["page_bytes"] >= 4096
    assert window["grown_bytes"] < times * size / 2
