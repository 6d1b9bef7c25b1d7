"""Estimates the size of an input before it is read, and the memory that the tables may use."""

from __future__ import annotations

import os
import sys

from perftool.model.machine_memory import group_limits
from perftool.readers.files.remote import is_url
from perftool.readers.files.stream import reads_once

# The approximate ratio of a trace's size to its size compressed with gzip or zstd.
_COMPRESSION = 12
# The size of an input at a URL is unknown. It counts as large, because a small database on disk is better than a
# database that is too large for memory.
_UNKNOWN = 1 << 40

_MOST_MB = 750
# The memory limit of a database on disk. With it, the whole process needs 600 MB.
_CACHE_MB = 400
# For more text than this, the database is a temporary file, because DuckDB can compress a file and spill to it.
_IN_MEMORY = 400 << 20
# The memory limit of an in-memory database, as a multiple of the text. The tables of a 230 MB trace take 5 times its
# size.
_GROWTH = 8
# The tables may use this share of the process's memory. The rest is for Python, its libraries, and memory that DuckDB
# does not count.
_SHARE = 0.5


def memory_limit_mb() -> int:
    """Return the memory for the tables in MB: 750, or half of what the container or ``ulimit`` allows if that is
    less.
    """
    allowed = group_limits()
    if sys.platform != "win32":
        import resource

        address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
        if address_space != resource.RLIM_INFINITY:
            allowed.append(address_space)
    return min([_MOST_MB, *(max(64, int(size * _SHARE) >> 20) for size in allowed)])


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def fits_in_memory(input_bytes: int, limit_mb: int) -> bool:
    """Whether the tables for ``input_bytes`` of text can stay in memory with a limit of ``limit_mb``."""
    return input_bytes <= (_IN_MEMORY if limit_mb == _MOST_MB else (limit_mb << 20) // 5)


def in_memory_limit_mb(input_bytes: int, limit_mb: int) -> int:
    """Return the memory in MB that an in-memory database may use for ``input_bytes`` of text before it spills to
    disk.
    """
    return limit_mb if limit_mb < _MOST_MB else max(limit_mb, _GROWTH * input_bytes >> 20)


def cache_limit_mb(limit_mb: int) -> int:
    """Return the memory in MB that a database on disk may use, given the limit ``limit_mb`` for all tables."""
    return min(limit_mb, _CACHE_MB)


def text_size(path: str) -> int:
    """Return the approximate size of a file's uncompressed text in bytes, or 0 for a pipe or a file that cannot be
    opened.
    """
    if is_url(path):
        return _UNKNOWN
    if reads_once(path):
        return 0
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            compressed = file.read(2) in (b"\x1f\x8b", b"\x28\xb5")
    except OSError:
        return 0
    return size * _COMPRESSION if compressed else size
