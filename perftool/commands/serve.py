"""Handing a file to the Perfetto UI, which runs in the user's browser."""

from __future__ import annotations

import os
import sys
import webbrowser
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copyfileobj
from threading import Event, Thread
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from perftool.commands.prepare import note
from perftool.errors import PerfToolError
from perftool.reporters.perfetto import shown_ns

if TYPE_CHECKING:
    from perftool.model.annotations import Annotations
    from perftool.model.report import Location

UI = "https://ui.perfetto.dev"
# The only local port that the UI's content policy lets it fetch from.
PORT = 9001
_PATIENCE_S = 600.0
_MARGIN_NS = 1000
_EXPAND = '[{"id":"dev.perfetto.ExpandTracksByRegex","args":["^habana_perf_tool"]}]'


class _Server(ThreadingHTTPServer):
    """Serves ``file``; ``served`` is set once somebody has fetched all of it."""

    # Browsers also open connections that they may never use.
    daemon_threads = True

    def __init__(self, file: Path, port: int) -> None:
        self.file = file
        self.served = Event()
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a browser that breaks off will ask again."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 30

    def do_GET(self) -> None:
        if self._head():
            with open(self.server.file, "rb") as file:
                copyfileobj(file, self.wfile)
            # Who else asks does not end what the UI is waited for.
            if self.headers.get("Origin") == UI:
                self.server.served.set()

    def do_HEAD(self) -> None:
        self._head()

    def do_OPTIONS(self) -> None:
        self.send_response(HTTPStatus.NO_CONTENT)
        self.send_header("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS")
        # Browsers ask before a public page may reach the local machine.
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    def end_headers(self) -> None:
        self.send_header("Access-Control-Allow-Origin", UI)
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the user need not hear of each request."""

    def _head(self) -> bool:
        """Answer with the headers of the file; whether the file was what is wanted."""
        # A page whose name was made to point here (DNS rebinding) says that name.
        port = self.server.server_address[1]
        if self.headers.get("Host") not in (f"127.0.0.1:{port}", f"localhost:{port}"):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            return False
        if self.headers.get("Origin", UI) != UI:
            self.send_error(HTTPStatus.FORBIDDEN)
            return False
        if unquote(self.path) != f"/{self.server.file.name}":
            self.send_error(HTTPStatus.NOT_FOUND)
            return False
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(self.server.file.stat().st_size))
        self.end_headers()
        return True


def serve_once(file: Path, drawn: Annotations, port: int = PORT) -> None:
    """Show ``file``, in which ``drawn`` is, in the Perfetto UI: serve it until it was fetched once.

    Prints the address when no browser can be opened. Raises PerfToolError when the port is taken, or when nobody
    fetches the file for ten minutes.
    """
    try:
        server = _Server(file, port)
    except OSError as error:
        raise PerfToolError(
            f"port {port} of 127.0.0.1, the only one that {UI} reads from, cannot be used ({error.strerror}); "
            "close what uses it, or open the file there by hand"
        ) from None
    with server:
        address = ui_address(file.name, drawn, port)
        if not _open_browser(address):
            note([f"Open this in a browser on this machine (or forward port {port} of 127.0.0.1 to it):", address])
        Thread(target=server.serve_forever, daemon=True).start()
        served = server.served.wait(_PATIENCE_S)
        server.shutdown()
    if not served:
        raise PerfToolError(f"nobody fetched {file.name} for {_PATIENCE_S / 60:.0f} minutes")


def ui_address(name: str, drawn: Annotations, port: int = PORT) -> str:
    """The address at which the UI loads ``name`` from here, unfolds our tracks, and goes to the first finding."""
    address = f"{UI}/#!/?url=http://127.0.0.1:{port}/{quote(name)}&startupCommands={quote(_EXPAND)}"
    if drawn.select:
        start, end = _shown(drawn.select)
        address += f"&ts={start}&dur={end - start}"
    start, end = _shown(drawn.view)
    # The UI goes nowhere when the stretch reaches beyond the trace, be it by a rounded nanosecond.
    if end - start > 2 * _MARGIN_NS:
        address += f"&visStart={start + _MARGIN_NS}&visEnd={end - _MARGIN_NS}"
    return address


def _shown(place: Location) -> tuple[int, int]:
    """Start and end of ``place`` as Perfetto has them."""
    start = place.ts_ns or 0
    return shown_ns(start), shown_ns(start + (place.dur_ns or 0))


def _open_browser(address: str) -> bool:
    """Whether a browser was opened: not in CI, nor where only one without a window could be."""
    graphical = sys.platform in ("darwin", "win32") or any(
        map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    )
    if os.environ.get("CI") or not graphical:
        return False
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False
