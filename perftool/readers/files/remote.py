"""Reads remote inputs by URL, through fsspec."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from perftool.errors import LONGEST_REASON, InputError, MissingExtraError, is_interrupt
from perftool.model.links import without_query

# Only silence counts as a failure, because there is no limit to how long a large file may take.
_SILENCE_S = 60.0
# Private networks whose addresses older Python versions report as global: local NAT64 (RFC 8215) and site-local.
_LOCAL = tuple(map(ip_network, ("64:ff9b:1::/48", "fec0::/10")))
# Packets to these addresses go to the IPv4 address in the last 32 bits: NAT64, mapped, translated, compatible.
_HOLD_IPV4 = tuple(map(ip_network, ("64:ff9b::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "::/96")))
# Hosts whose first connection went to an address on the internet. If such a name later leads to a private address, the
# connection is refused.
_PUBLIC: set[str | None] = set()
_WEB = re.compile("https?(://|$)", re.IGNORECASE)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_PASSWORD = re.compile(r"[^/]+://[^/?#:]*:[^/?#]*@")


def is_url(path: str) -> bool:
    """Whether ``path`` is a URL (``s3://bucket/key``). A Windows drive letter is not a scheme."""
    return _URL.match(path) is not None


def shown_path(path: str) -> str:
    """Return ``path`` for reports and messages, without parts of a URL that look like secrets, such as its
    signature.
    """
    return _without_secrets(path) if is_url(path) else path


def _without_secrets(text: str) -> str:
    # Imported here, because compiling its patterns takes 5 ms, and most inputs are local.
    from perftool.readers.secrets import without_secrets

    return without_secrets(text)


def list_url(url: str) -> list[str]:
    """Return the URLs of the files that ``url`` (a file, a folder or a glob) selects, sorted. A web address selects one
    file.

    Raise InputError if access fails, and MissingExtraError if fsspec or one of its backends is not installed.
    """
    system, path = _resolve(url)
    if _WEB.match(url):
        if without_query(url).endswith("/") or "*" in without_query(url):
            raise InputError(f"{shown_path(url)}: a web address names one file, not a folder or a pattern")
        return [url]
    with _sentences(url):
        if path == without_query(path) and any(mark in path for mark in "*?["):
            found = [str(name) for name in system.glob(path) if system.isfile(name)]
        elif system.isdir(path):
            found = [str(name) for name in system.find(path)]
        else:
            found = [path] if system.exists(path) else []
        if chained := next((name for name in found if "::" in name), None):
            # In a URL, these colons separate the names of two files.
            raise InputError(
                f"{shown_path(url)}: the name of a file there contains '::', so no URL can name it: {chained}"
            )
        return sorted(str(system.unstrip_protocol(name)) for name in found)


@contextmanager
def local_copy(path: str, size: int | None = None) -> Iterator[str]:
    """Provide a local path with the content of ``path``: the path itself or, for a URL, a temporary copy. The download
    may end after ``size`` bytes if a size is given.

    Raise InputError if the file cannot be fetched or needs more than half of the free disk space, and
    MissingExtraError if fsspec or one of its backends is not installed.
    """
    if not is_url(path):
        yield path
        return
    system, place = _resolve(path)
    with tempfile.TemporaryDirectory(prefix="perftool-") as folder:
        # Keep the file's name, which may contain the rank.
        copy = str(Path(folder) / PurePosixPath(without_query(place)).name)
        with _sentences(path), suppress(_EnoughError):
            system.get_file(place, copy, callback=_limit(folder, size))
        yield copy


class _EnoughError(Exception):
    """Enough of the file was downloaded."""


def _resolve(url: str) -> tuple[Any, str]:
    # Reject passwords, because reports and messages show URLs.
    if _PASSWORD.match(url):
        raise InputError(f"{url.split('://')[0]}://…: a URL must not contain a password, which the report would show")
    try:
        import fsspec
    except ImportError:
        text = f"{shown_path(url)}: a URL needs fsspec (pip install 'habana-perf-tool[remote]')"
        raise MissingExtraError(text) from None
    try:
        # Some file systems open a connection when they are created, which may fail.
        with _sentences(url):
            if _WEB.match(url):
                return fsspec.filesystem("http", **_web_options(url)), url
            if any(map(_WEB.match, url.split("::"))):
                raise ValueError("a web address cannot be part of a chained URL (::) here; download the file first")
            system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        scheme = url.split("://")[0]
        raise MissingExtraError(f"{shown_path(url)}: fsspec cannot open {scheme}:// here ({error})") from None
    return system, str(path)


def _limit(folder: str, size: int | None) -> Any:
    """Return a callback for fsspec that ends a download after ``size`` bytes, or when it takes more than half of the
    free space in ``folder``, because the analysis needs the rest.
    """
    from fsspec.callbacks import Callback

    most = shutil.disk_usage(folder).free // 2

    class Limit(Callback):  # type: ignore[misc, unused-ignore]
        def call(self, *names: Any, **values: Any) -> None:
            if size is not None and self.value >= size:
                raise _EnoughError
            if self.value > most:
                raise OSError("it would take more than half of the free disk space")

    return Limit()


def _web_options(url: str) -> dict[str, Any]:
    """Return options for ``url``: time limits, and protection against redirects and DNS names that lead from the
    internet into a private network."""
    import aiohttp

    host = urlsplit(url).hostname
    public: bool | None = True if host in _PUBLIC else None

    class Answer(aiohttp.ClientResponse):
        """A response that must begin in time, even if the server sends interim responses first, or the header byte by
        byte."""

        async def start(self, connection: Any) -> Any:
            try:
                return await asyncio.wait_for(super().start(connection), _SILENCE_S)
            except asyncio.TimeoutError:
                raise OSError(f"it did not respond within {_SILENCE_S:.0f} s") from None

    def connect(place: Any) -> socket.socket:
        # A name may lead into a private network only if its first connection does, because anyone can point a name at
        # private addresses.
        nonlocal public
        if not _is_private(str(place[4][0])):
            if public is None:
                _PUBLIC.add(host)
            public = True
        elif public:
            raise OSError(0, "it leads from the internet to an address in a private network")
        else:
            public = False
        return socket.socket(*place[:3])

    async def client(**options: Any) -> Any:
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(socket_factory=connect), **options)

    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_SILENCE_S, sock_read=_SILENCE_S)
    return {"client_kwargs": {"timeout": timeout, "response_class": Answer}, "get_client": client}


def _is_private(address: str) -> bool:
    found = ip_address(address.partition("%")[0])
    if any(found in network for network in _LOCAL):
        return True
    held = found.sixtofour if isinstance(found, IPv6Address) else None
    if any(found in network for network in _HOLD_IPV4):
        held = IPv4Address(int(found) & 0xFFFFFFFF)
    # Addresses of Teredo (2001::/32) are not global.
    return not (held or found).is_global


@contextmanager
def _sentences(url: str) -> Iterator[None]:
    """Turn errors in the block into InputErrors. fsspec's file systems may raise errors of any type."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{shown_path(url)}: no such file") from None
    except ImportError:
        raise
    except Exception as error:  # noqa: BLE001 - each file system has its own errors
        if is_interrupt(error):
            raise KeyboardInterrupt from None
        plain = isinstance(error, OSError | ValueError) and str(error)
        # The reason may contain the URL in a different spelling.
        why = _without_secrets(" ".join((plain or f"{type(error).__name__}: {error}").split()))[:LONGEST_REASON]
        raise InputError(f"{shown_path(url)}: cannot fetch ({why})") from None
