"""Serves a file to the Perfetto UI in the user's browser."""

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

from perftool.commands.output import print_notes
from perftool.errors import PerfToolError
from perftool.reporters.perfetto import shown_ns

if TYPE_CHECKING:
    from perftool.model.annotations import Annotations
    from perftool.model.report import Location

UI = "https://ui.perfetto.dev"
# The content policy of the UI allows no other local port.
PORT = 9001
_PATIENCE_S = 600.0
_MARGIN_NS = 1000
_EXPAND = '[{"id":"dev.perfetto.ExpandTracksByRegex","args":["^perftool"]}]'


class _Server(ThreadingHTTPServer):
    """Serves ``file``; ``served`` is set once the UI has fetched all of it."""

    # The program must not wait for connections that a browser opens and never uses.
    daemon_threads = True

    def __init__(self, file: Path, port: int) -> None:
        self.file = file
        self.path = f"/{_served_name(file)}"
        self.served = Event()
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors: a browser retries a broken connection."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 30

    def do_GET(self) -> None:
        if self._head():
            with open(self.server.file, "rb") as file:
                copyfileobj(file, self.wfile)
            # Only a request from the UI ends the wait.
            if self.headers.get("Origin") == UI:
                self.server.served.set()

    def do_HEAD(self) -> None:
        self._head()

    def do_OPTIONS(self) -> None:
        self.send_response(HTTPStatus.NO_CONTENT)
        self.send_header("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS")
        # Browsers send a preflight request before a public page may access the local machine.
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    def end_headers(self) -> None:
        self.send_header("Access-Control-Allow-Origin", UI)
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Suppress the request log."""

    def _head(self) -> bool:
        """Send the headers of the file, or an error. Return whether the request was valid."""
        # Protects against DNS rebinding, where a page reaches this server through another host name.
        port = self.server.server_address[1]
        if self.headers.get("Host") not in (f"127.0.0.1:{port}", f"localhost:{port}"):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            return False
        if self.headers.get("Origin", UI) != UI:
            self.send_error(HTTPStatus.FORBIDDEN)
            return False
        if unquote(self.path) != self.server.path:
            self.send_error(HTTPStatus.NOT_FOUND)
            return False
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(self.server.file.stat().st_size))
        self.end_headers()
        return True


def serve_once(file: Path, drawn: Annotations, port: int = PORT) -> None:
    """Show ``file``, with its annotations ``drawn``, in the Perfetto UI: serve it until it has been fetched once.

    Print the address if no browser can be opened. Raise PerfToolError if the port is taken, or if no browser
    fetches the file within ten minutes.
    """
    try:
        server = _Server(file, port)
    except OSError as error:
        raise PerfToolError(
            f"port {port} of 127.0.0.1, the only port that {UI} reads from, cannot be used ({error.strerror}); "
            "close the program that uses it, or open the file in the UI by hand"
        ) from None
    with server:
        address = ui_address(_served_name(file), drawn, port)
        if not _open_browser(address):
            print_notes(
                [f"Open this in a browser on this machine (or forward port {port} to the browser's machine):", address]
            )
        Thread(target=server.serve_forever, daemon=True).start()
        served = server.served.wait(_PATIENCE_S)
        server.shutdown()
    if not served:
        raise PerfToolError(f"no browser fetched {file.name} within {_PATIENCE_S / 60:.0f} minutes")


def _served_name(file: Path) -> str:
    """Return the name of ``file`` in the UI. Bytes that are not UTF-8 are replaced, because the UI cannot decode
    them.
    """
    return os.fsencode(file.name).decode(errors="replace")


def ui_address(name: str, drawn: Annotations, port: int = PORT) -> str:
    """Build the UI address that loads ``name`` from this server, expands our tracks, and shows the first finding."""
    address = f"{UI}/#!/?url=http://127.0.0.1:{port}/{quote(name)}&startupCommands={quote(_EXPAND)}"
    if drawn.select:
        start, end = _shown(drawn.select)
        address += f"&ts={start}&dur={end - start}"
    start, end = _shown(drawn.view)
    # The UI ignores a range that exceeds the trace, even by a rounded nanosecond.
    if end - start > 2 * _MARGIN_NS:
        address += f"&visStart={start + _MARGIN_NS}&visEnd={end - _MARGIN_NS}"
    return address


def _shown(place: Location) -> tuple[int, int]:
    """Return the start and end of ``place`` in ns, rounded as Perfetto does."""
    start = place.ts_ns or 0
    return shown_ns(start), shown_ns(start + (place.dur_ns or 0))


def _open_browser(address: str) -> bool:
    """Open a browser, unless this runs in CI or without a graphical display. Return whether a browser was opened."""
    graphical = sys.platform in ("darwin", "win32") or any(
        map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    )
    if os.environ.get("CI") or not graphical:
        return False
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False
