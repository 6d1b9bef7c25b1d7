"""What a recording contains about the machine."""

from __future__ import annotations

import sys
from threading import Thread

import pytest

torch = pytest.importorskip("torch")

from perftool.integrations import machine  # noqa: E402
from perftool.integrations.activities import ProfilerAction  # noqa: E402
from perftool.integrations.machine import Watch  # noqa: E402


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports the resident memory")
def test_memory_that_is_freed_and_provided_again_counts_but_does_not_grow() -> None:
    """Transparent huge pages cause fewer faults, so the test only checks that there are some."""
    size, times = 64 << 20, 8
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


def test_page_faults_are_counted_before_the_profiler_starts() -> None:
    actions = [ProfilerAction.NONE] * 8 + [ProfilerAction.WARMUP, ProfilerAction.RECORD_AND_SAVE, ProfilerAction.NONE]
    watch = Watch(actions.__getitem__)
    for step in range(10):
        watch.schedule(step)
    quiet = watch.facts()["quiet"]

    assert quiet["steps"] == 5
    assert set(quiet) == {"steps", "wall_ns", "cpu_ns", "system_ns", "page_faults", "page_bytes", "grown_bytes"}


def test_steps_between_two_recordings_count_without_the_first_recording() -> None:
    cycle = [ProfilerAction.NONE] * 2 + [ProfilerAction.WARMUP, ProfilerAction.RECORD_AND_SAVE]
    watch = Watch((cycle * 2).__getitem__)
    for step in range(6):
        watch.schedule(step)

    assert watch.facts()["quiet"]["steps"] == 1


def test_without_a_step_before_the_profiler_nothing_is_counted() -> None:
    watch = Watch(lambda _: ProfilerAction.RECORD)
    watch.schedule(0)
    watch.schedule(1)

    assert "quiet" not in watch.facts()


def test_the_program_does_not_wait_for_a_measurement_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def exits() -> None:
        raise SystemExit

    monkeypatch.setattr(machine, "measured_peaks", exits)
    waiting = Thread(target=machine._measured, args=(None, bool), daemon=True)
    waiting.start()
    waiting.join(20)
    assert not waiting.is_alive()
