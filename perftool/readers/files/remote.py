"""Inputs that lie elsewhere: URLs, through fsspec."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from perftool.errors import InputError, MissingExtraError

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def is_url(path: str) -> bool:
    """Whether ``path`` names something on another system (``s3://bucket/key``); a drive letter is none."""
    return _URL.match(path) is not None


def list_url(url: str) -> list[str]:
    """The files that ``url`` means, itself a file, a folder or a glob, sorted, as URLs.

    Raises InputError when there is nothing, and MissingExtraError when fsspec or what it needs is not installed.
    """
    system, path = _resolve(url)
    with _sentences(url):
        if any(mark in path for mark in "*?["):
            found = [str(name) for name in system.glob(path) if system.isfile(name)]
        elif system.isdir(path):
            found = [str(name) for name in system.find(path)]
        else:
            found = [path] if system.exists(path) else []
        return sorted(str(system.unstrip_protocol(name)) for name in found)


@contextmanager
def local_copy(path: str) -> Iterator[str]:
    """A path on this machine with the content of ``path``: itself, or a copy of the URL, gone afterwards.

    Raises InputError when it cannot be fetched, and MissingExtraError when fsspec or what it needs is not installed.
    """
    if not is_url(path):
        yield path
        return
    system, place = _resolve(path)
    with tempfile.TemporaryDirectory(prefix="perftool-") as folder:
        # The name may tell the rank.
        copy = str(Path(folder) / PurePosixPath(place).name)
        with _sentences(path):
            system.get_file(place, copy)
        yield copy


def beginning(url: str, size: int) -> bytes:
    """The first ``size`` bytes of the file at ``url``, fewer where it ends. Raises what ``local_copy`` raises."""
    system, place = _resolve(url)
    with _sentences(url), system.open(place, "rb") as file:
        return bytes(file.read(size))


def _resolve(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise MissingExtraError(f"{url}: a URL needs fsspec (pip install 'habana-perf-tool[remote]')") from None
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        scheme = url.split("://")[0]
        raise MissingExtraError(f"{url}: fsspec cannot open {scheme}:// here ({error})") from None
    except ValueError as error:
        raise InputError(f"{url}: {error}") from None
    return system, str(path)


@contextmanager
def _sentences(url: str) -> Iterator[None]:
    """Turns what file systems raise into one sentence."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{url}: no such file") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{url}: cannot be fetched ({error})") from None
