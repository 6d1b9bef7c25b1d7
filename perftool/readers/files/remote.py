"""Reads remote inputs by URL, through fsspec."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urljoin, urlsplit

from perftool.errors import LONGEST_REASON, InputError, MissingExtraError, is_interrupt
from perftool.model.links import without_query

# Only silence is treated as a failure, because a large file may take any time.
_SILENCE_S = 60.0
# Private networks whose addresses older Python versions report as global: local NAT64 (RFC 8215) and site-local.
_LOCAL = tuple(map(ip_network, ("64:ff9b:1::/48", "fec0::/10")))
# The last 32 bits of these addresses are the IPv4 address that a packet reaches: NAT64, mapped, translated, compatible.
_HOLD_IPV4 = tuple(map(ip_network, ("64:ff9b::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "::/96")))
_WEB = ("http://", "https://")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_PASSWORD = re.compile(r"[^/]+://[^/?#:]*:[^/?#]*@")


def is_url(path: str) -> bool:
    """Whether ``path`` is a URL (``s3://bucket/key``). A Windows drive letter is not a scheme."""
    return _URL.match(path) is not None


def shown_path(path: str) -> str:
    """``path`` for reports and messages: a URL without what looks like a secret, such as its signature."""
    return _without_secrets(path) if is_url(path) else path


def _without_secrets(text: str) -> str:
    # Imported here, because its patterns take 5 ms and most inputs are local.
    from perftool.readers.secrets import without_secrets

    return without_secrets(text)


def list_url(url: str) -> list[str]:
    """The files selected by ``url`` (a file, a folder or a glob), sorted, as URLs.

    Raises InputError for failed access, and MissingExtraError when fsspec or a backend of it is not installed.
    """
    system, path = _resolve(url)
    with _sentences(url):
        if path == without_query(path) and any(mark in path for mark in "*?["):
            found = [str(name) for name in system.glob(path) if system.isfile(name)]
        elif system.isdir(path):
            found = [str(name) for name in system.find(path)]
        else:
            found = [path] if system.exists(path) else []
        return sorted(str(system.unstrip_protocol(name)) for name in found)


@contextmanager
def local_copy(path: str) -> Iterator[str]:
    """A local path with the content of ``path``: the path itself or, for a URL, a temporary copy.

    Raises InputError when it cannot be fetched or takes more than half of the free disk space, and MissingExtraError
    when fsspec or a backend of it is not installed.
    """
    if not is_url(path):
        yield path
        return
    system, place = _resolve(path)
    with tempfile.TemporaryDirectory(prefix="perftool-") as folder:
        # Keep the name, which may contain the rank.
        copy = str(Path(folder) / PurePosixPath(without_query(place)).name)
        with _sentences(path):
            system.get_file(place, copy, callback=_limit(folder))
        yield copy


def beginning(url: str, size: int) -> bytes:
    """The first ``size`` bytes of the file at ``url``, fewer if it is shorter. Raises the errors of ``local_copy``."""
    system, place = _resolve(url)
    with _sentences(url), system.open(place, "rb") as file:
        return bytes(file.read(size))


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
        # Creating some file systems already opens a connection, which may fail.
        with _sentences(url):
            system, path = fsspec.core.url_to_fs(url, **(_web_options(url) if url.lower().startswith(_WEB) else {}))
    except ImportError as error:
        scheme = url.split("://")[0]
        raise MissingExtraError(f"{shown_path(url)}: fsspec cannot open {scheme}:// here ({error})") from None
    return system, str(path)


def _limit(folder: str) -> Any:
    """A callback for fsspec that ends a download when it fills more than half of the free space of ``folder``.

    The analysis needs the rest.
    """
    from fsspec.callbacks import Callback

    most = shutil.disk_usage(folder).free // 2

    class Limit(Callback):  # type: ignore[misc, unused-ignore]
        def relative_update(self, inc: int = 1) -> None:
            super().relative_update(inc)
            if self.value > most:
                raise OSError("it would take more than half of the free disk space")

    return Limit()


def _web_options(url: str) -> dict[str, Any]:
    """Options for ``url``: time limits, and protection from redirects and DNS names that lead into a private
    network."""
    import aiohttp

    class Answer(aiohttp.ClientResponse):
        """A response that must begin in time, even if the server first sends interim responses, or sends a header byte
        by byte."""

        async def start(self, connection: Any) -> Any:
            try:
                return await asyncio.wait_for(super().start(connection), _SILENCE_S)
            except asyncio.TimeoutError:
                raise OSError(f"it did not respond within {_SILENCE_S:.0f} s") from None

    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_SILENCE_S, sock_read=_SILENCE_S)
    kwargs = {"timeout": timeout, "response_class": Answer}
    if _is_inside(url):
        return {"client_kwargs": kwargs}
    config = aiohttp.TraceConfig()

    async def redirected(session: Any, context: Any, answer: Any) -> None:
        # aiohttp follows either header to another address.
        headers = answer.response.headers
        target = headers.get("Location") or headers.get("URI", "")
        if _is_inside(urljoin(str(answer.response.url), target)):
            raise OSError("it is redirected to an address in a private network")

    class Outside(aiohttp.ThreadedResolver):  # type: ignore[misc, unused-ignore]
        """Checks the resolved addresses at connection time because they may differ from those checked before."""

        async def resolve(self, *place: Any, **options: Any) -> Any:
            found = await super().resolve(*place, **options)
            if any(_is_private(one["host"]) for one in found):
                raise OSError(0, "its name resolves to an address in a private network")
            return found

    async def client(**options: Any) -> Any:
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=Outside()), **options)

    config.on_request_redirect.append(redirected)
    return {"client_kwargs": {**kwargs, "trace_configs": [config]}, "get_client": client}


def _is_inside(url: str) -> bool:
    """Whether all addresses of the host of ``url`` are on this machine or its network, unreachable from the internet. A
    stranger may add such an address to the name of a public server.
    """
    try:
        found = socket.getaddrinfo(urlsplit(url).hostname, None)
    except (OSError, ValueError):
        return False
    return all(_is_private(str(address[0])) for *_, address in found)


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
    """Turn the errors of the block, which fsspec's file systems may raise with any type, into InputErrors."""
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
        # The reason may repeat the URL in another spelling.
        why = _without_secrets(" ".join((plain or f"{type(error).__name__}: {error}").split()))[:LONGEST_REASON]
        raise InputError(f"{shown_path(url)}: cannot fetch ({why})") from None
