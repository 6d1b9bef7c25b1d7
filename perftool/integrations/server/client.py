"""An HTTP client for a language-model server, vLLM or SGLang. It contacts only the given host, uses no proxy, and
follows no redirect.
"""

from __future__ import annotations

import http.client
import io
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from perftool.errors import InputError

_SHORT_S = 30
# A server answers only after it has written its profile, which takes minutes for long profiles with stacks.
_STOP_S = 1800
# More than the metrics page of a large server, which is about 100 kB long.
_LONGEST = 64 << 20
# Bytes to read at a time. Within one read, http.client keeps each chunk as an object, so a larger read of very short
# chunks would need much more memory.
_PIECE = 64 << 10
_NO_PROFILER = """\
the server has no profiler: start vLLM with \
--profiler-config '{"profiler": "torch", "torch_profiler_dir": "/a/folder"}' \
(before version 0.13 with VLLM_TORCH_PROFILER_DIR=/a/folder), SGLang with SGLANG_TORCH_PROFILER_DIR=/a/folder"""

_BROKE_OFF = ConnectionError("the response broke off")


class NoAnswerError(InputError):
    """The server may have received a request but did not answer it, or it or a proxy answered with an error."""


@dataclass(frozen=True)
class Server:
    """A server at an address. Its methods raise InputError, with the address, if a request fails."""

    scheme: str
    host: str
    port: int

    @property
    def url(self) -> str:
        """The address, as the user would type it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def metrics(self) -> bytes | None:
        """Fetch the metrics page. Return None if the server has none."""
        status, body = self._ask("GET", "/metrics", _SHORT_S)
        return body if status == http.client.OK else None

    def start_profile(self) -> None:
        """Start the profiler."""
        status, _ = self._ask("POST", "/start_profile", _SHORT_S)
        self._require(status, "the profiler cannot be started")

    def stop_profile(self, seconds: float = _STOP_S) -> None:
        """Stop the profiler, and wait up to ``seconds`` until the server has written the traces."""
        status, _ = self._ask("POST", "/stop_profile", seconds)
        self._require(status, "the profiler cannot be stopped")

    def _require(self, status: int, what: str) -> None:
        if status in (http.client.NOT_FOUND, http.client.METHOD_NOT_ALLOWED):
            raise InputError(f"{self.url}: {_NO_PROFILER}")
        if 300 <= status < 400:
            raise InputError(f"{self.url}: redirects are not followed; use the address of the server itself")
        if status != http.client.OK:
            error = NoAnswerError if status >= http.client.INTERNAL_SERVER_ERROR else InputError
            raise error(f"{self.url}: {what} (HTTP {status})")

    def _ask(self, method: str, path: str, seconds: float) -> tuple[int, bytes]:
        # The request runs in a thread with a time limit. A socket timeout is not enough: it restarts with each byte and
        # with each address that the host name resolves to, and does not cover DNS resolution.
        answers: SimpleQueue[tuple[int, bytes] | Exception] = SimpleQueue()
        Thread(target=lambda: answers.put(self._answer(method, path, seconds)), daemon=True).start()
        try:
            found = answers.get(timeout=seconds)
        except Empty:
            found = TimeoutError("timed out")
        if isinstance(found, Exception):
            why = getattr(found, "strerror", None) or found or type(found).__name__
            raise NoAnswerError(f"{self.url}: no answer ({why})")
        if len(found[1]) > _LONGEST:
            raise InputError(f"{self.url}: the response is larger than {_LONGEST >> 20} MiB")
        return found

    def _answer(self, method: str, path: str, seconds: float) -> tuple[int, bytes] | Exception:
        """Return the status and the content, up to the size limit, or the error if there is no answer."""
        connect = http.client.HTTPSConnection if self.scheme == "https" else http.client.HTTPConnection
        connection = connect(self.host, self.port, timeout=seconds)
        connection.response_class = _Response
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            content = bytearray()
            while len(content) <= _LONGEST and (piece := answer.read(_PIECE)):
                content += piece
            # For a body with a Content-Length, http.client does not report that bytes are missing.
            if answer.length and len(content) <= _LONGEST:
                return _BROKE_OFF
            return answer.status, bytes(content)
        except http.client.IncompleteRead:
            return _BROKE_OFF
        # A host such as a..b raises UnicodeError.
        except (OSError, ValueError, http.client.HTTPException) as error:
            return error
        finally:
            connection.close()


class _Response(http.client.HTTPResponse):
    """A response whose reads always have a size limit. Without this class, http.client would read without limit if the
    length of a chunk is negative."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.fp = _LimitedReader(self.fp.detach())


class _LimitedReader(io.BufferedReader):
    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            raise ValueError("an HTTP chunk has no valid length")
        return super().read(size)


def server_at(address: str) -> Server:
    """Parse ``http://HOST:PORT``. Raise InputError for anything else."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    plain = parts.path in ("", "/") and not (parts.query or parts.fragment)
    # Messages end up in logs, which must not contain passwords.
    if "@" in address:
        raise InputError("--server: expected http://HOST:PORT, without a user name or password")
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
        raise InputError(f"--server {address}: expected http://HOST:PORT")
    return Server(parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80))
