from __future__ import annotations

import resource
from pathlib import Path

import pytest

from perftool.model import machine_memory
from perftool.store import sizing

GIB = 1 << 30


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with a container's memory limit, which is the only limit of this process."""
    monkeypatch.setattr(machine_memory, "_CGROUP_LIMITS", (tmp_path / "memory.max", tmp_path / "absent"))
    monkeypatch.setattr(resource, "getrlimit", lambda what: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return tmp_path / "memory.max"


@pytest.mark.parametrize(
    ("limit", "expected"), [("max\n", 750), (f"{64 * GIB}\n", 750), (f"{GIB}\n", 512), ("1000\n", 64)]
)
def test_a_container_lowers_the_limit(group: Path, limit: str, expected: int) -> None:
    group.write_text(limit, encoding="utf-8")

    assert sizing.memory_limit_mb() == expected


def test_ulimit_lowers_the_limit(group: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (GIB, resource.RLIM_INFINITY))

    assert not group.exists()
    assert sizing.memory_limit_mb() == 512


def test_with_little_memory_less_stays_in_memory() -> None:
    assert sizing.fits_in_memory(300 << 20, 750)
    assert not sizing.fits_in_memory(500 << 20, 750)
    assert not sizing.fits_in_memory(300 << 20, 512)
    assert sizing.fits_in_memory(50 << 20, 512)


def test_a_database_on_disk_uses_less_than_its_limit() -> None:
    assert [sizing.cache_limit_mb(limit) for limit in (64, 750)] == [64, 400]


def test_tables_in_memory_have_room_for_their_text() -> None:
    assert [sizing.in_memory_limit_mb(text << 20, 750) for text in (1, 300)] == [750, 2400]
    assert sizing.in_memory_limit_mb(100 << 20, 512) == 512
