"""Foreign numbers, links and patterns that once crashed the program or kept it busy."""

from __future__ import annotations

import numpy as np
import pytest

from perftool.engine.ranks.plain import from_plain
from perftool.engine.settings.settings import load_settings
from perftool.errors import SettingsError
from perftool.model.links import rule_url
from perftool.model.shortfalls import parts_of, tile_of
from perftool.readers.metrics.run_lines import _metrics
from perftool.replay.points import Points
from perftool.reporters.html.environment import _short


@pytest.mark.parametrize("link", ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", " https://x"])
def test_only_the_web_is_linked(link: str) -> None:
    assert rule_url("ACM901", [link]) is None
    assert rule_url("ACM901", [link, "https://example.com"]) == "https://example.com"


def test_moments_of_a_clock_that_jumps_by_decades_keep_their_threads() -> None:
    times = np.array([0, 1 << 60], dtype=np.int64)
    points = Points.of([(thread, times) for thread in range(12)])
    assert points.thread.tolist() == [thread for thread in range(12) for _ in times]
    assert points.time.tolist() == times.tolist() * 12
    assert points.at(11, times).tolist() == [22, 23]


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
