"""Untrusted numbers, links and patterns that once crashed the program or kept it busy."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest
from events import begin, document, end, kernel, launch, memcpy, runtime, x
from stores import store_over

import perftool
from perftool.engine.ranks.plain import from_plain
from perftool.engine.settings.settings import load_settings
from perftool.errors import InputError, SettingsError
from perftool.model.links import rule_url
from perftool.model.shortfalls import parts_of, tile_of
from perftool.readers.metrics.run_lines import _metrics
from perftool.replay.points import Points
from perftool.reporters.html.environment import _short


@pytest.mark.parametrize("link", ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", " https://x"])
def test_only_the_web_is_linked(link: str) -> None:
    assert rule_url("ACM901", [link]) is None
    assert rule_url("AB901", [link, "https://example.com"]) == "https://example.com"
    assert rule_url("ACM901", [link, "https://example.com"]) == "https://example.com"


def test_moments_of_a_clock_that_jumps_by_decades_keep_their_threads() -> None:
    times = np.array([0, 1 << 60], dtype=np.int64)
    points = Points.of([(thread, times) for thread in range(12)])
    assert points.thread.tolist() == [thread for thread in range(12) for _ in times]
    assert points.time.tolist() == times.tolist() * 12
    assert points.at(11, times).tolist() == [22, 23]


LONGEST_US = 2**53 // 1000


@pytest.mark.parametrize("apart", [False, True])
def test_lengths_that_are_impossible_together_are_damage(apart: bool) -> None:
    """The sum of the lengths would not fit into 64 bits."""
    good = [x("aten::mm", 10, 100), *launch(1, 20, 5, 30, 40)]
    lanes = range(1100)
    slow = [begin("aten::add", 0, tid=lane) for lane in lanes] if apart else []
    slow += [end(LONGEST_US, tid=lane) if apart else x("aten::add", 0, LONGEST_US, tid=lane) for lane in lanes]
    with store_over([*good, *slow]) as store:
        assert store.rows("_op_totals")[0]["total_ns"] == 95_000
        assert store.rows("_device_op_totals")[0]["total_ns"] == 40_000
        assert [(row["kind"], row["count"]) for row in store.rows("input_issues")] == [("events without times", 1100)]


def test_kernels_whose_lengths_are_impossible_together_are_set_aside() -> None:
    kernels = [kernel("k", 0, LONGEST_US, stream=stream) for stream in range(1100)]
    with store_over([x("aten::mm", 0, LONGEST_US), *kernels, kernel("good", 10, 5)]) as store:
        assert store.rows("_device_op_totals")[0]["total_ns"] == 5000
        assert {row["set_aside"] for row in store.rows("device_ops")} == {None, "impossible length"}


def test_ranks_that_together_last_for_centuries_are_refused(tmp_path: Path) -> None:
    for rank in range(2):
        events = [x("aten::mm", -(2**61) // 1000 + 1, 5), x("aten::mm", 2**61 // 1000 - 9, 5)]
        (tmp_path / f"rank{rank}.json").write_bytes(document(events, distributedInfo={"rank": rank, "world_size": 2}))
    assert perftool.analyze(tmp_path / "rank0.json").summary["window_ms"].value
    with pytest.raises(InputError, match="last more than 146 years"):
        perftool.analyze(tmp_path)


def test_long_recordings_of_many_threads_keep_all_lengths() -> None:
    day_us = 86_400_000_000
    frames = [x(f"f{depth}", 0, day_us, "python_function", tid=lane) for lane in range(100) for depth in range(10)]
    with store_over(frames) as store:
        assert len(store.rows("slices")) == 1000
        assert store.rows("input_issues") == []


def test_impossible_sizes_are_unknown() -> None:
    events = []
    for number, size in enumerate((4096, 2**44, 2**45, 2**62, -(2**62))):
        copy = memcpy("Memcpy HtoD (Pinned -> Device)", 100 * number + 10, 5, number, bytes=size)
        product = x("aten::mm", 100 * number + 20, 20, **{"Input Dims": [[size, 64], [64, 64]]})
        events += [runtime("cudaMemcpyAsync", 100 * number, 5, number), copy, product]
        events += launch(50 + number, 100 * number + 25, 5, 100 * number + 40, 20, "gemm")
    with store_over(events) as store:
        assert [row["bytes"] for row in sorted(store.rows("copies"), key=itemgetter("ts"))] == [
            4096,
            2**44,
            None,
            None,
            None,
        ]
        assert [row["m"] for row in sorted(store.rows("matmuls"), key=itemgetter("ts"))] == [
            4096,
            None,
            None,
            None,
            None,
        ]


def test_impossible_numbers_are_damage() -> None:
    assert _metrics({"step_time_ms": 1e308}) is None
    assert _metrics({"step_time_ms": 12.5, "steps": None}) is not None
    with pytest.raises(ValueError, match="bits"):
        from_plain(int, 10**400)


@pytest.mark.parametrize("digits", ["0", "9" * 30, "9" * 5000])
def test_an_impossible_tile_is_ignored(digits: str) -> None:
    for name in (f"tilesize{digits}x64", f"nvjet_x_64x{digits}_", f"x_MT{digits}x128x8_y"):
        assert tile_of(name) is None
    assert parts_of(f"x_MT128x128x8_GSU{digits}_") == 1


def test_a_kernel_without_a_name_is_shown() -> None:
    assert _short(None) == "(no name)"


def test_the_length_of_a_file_pattern_is_limited() -> None:
    patterns = ", ".join(f'"{number}" = ["GAP101"]' for number in range(1001))
    with pytest.raises(SettingsError, match="more than 1,000 patterns"):
        load_settings([], [f"per-file-ignores = {{{patterns}}}"], True, {})


@pytest.mark.parametrize("dur", [10, -5])
def test_an_event_without_a_name_is_left_out(dur: float) -> None:
    nameless = {**kernel("", 1000, dur), "name": None}
    with store_over([x("aten::mm", 0, 60), kernel("gemm", 30, 50), nameless]) as store:
        assert [row["name"] for row in store.rows("device_ops")] == ["gemm"]
        assert [row["kind"] for row in store.rows("input_issues")] == ["unknown events"]
