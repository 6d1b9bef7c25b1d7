"""The worst that a hostile web server can do is make a trace unreadable."""

from __future__ import annotations

import socket
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("fsspec")

from builders.reports import starved
from events import document

from perftool.cli import main
from perftool.errors import InputError
from perftool.readers.discovery.contents import is_text
from perftool.readers.files import remote
from perftool.readers.files.remote import list_url, local_copy


class _Server(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Keep the server's log out of the test output."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        name = self.path.strip("/").partition(".")[0]
        if name.isdigit():
            self.send_error(int(name))
        elif name == "garbage":
            self.wfile.write(b"\x1b[31mHTTP/1.1 \r\n\x00\x00")
        elif name in ("circle", "file", "other", "inside"):
            self.send_response(302)
            targets = {"circle": "/circle.json", "file": "file:///etc/passwd", "other": "/good.json",
                       "inside": "http://127.0.0.2:9/good.json"}  # fmt: skip
            self.send_header("URI" if self.path.endswith("?uri") else "Location", targets[name])
            self.end_headers()
        else:
            self.send_response(200)
            self.end_headers()
            known = {"good": b"{}", "trace": document(starved()), "long": bytes(100 << 20)}
            with suppress(OSError):
                self.wfile.write(known.get(name, bytes(1 << 20)))


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize(
    ("name", "why"),
    [("500", "500"), ("403", "403"), ("404", "no such file"), ("garbage", "Bad status line"),
     ("circle", "TooManyRedirects"), ("file", "file:///etc/passwd")],
)  # fmt: skip
def test_a_failing_server_gives_one_sentence(address: str, name: str, why: str) -> None:
    url = f"{address}/{name}.json"
    with pytest.raises(InputError, match=f"^{url}: .*{why}") as raised, local_copy(url):
        pass
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("url", ["zip://x::file:///etc/passwd", "nosuch://x", "reference://::file:///none.json"])
def test_an_address_without_a_file_gives_one_sentence(url: str) -> None:
    with pytest.raises(InputError, match=f"^{url}: (cannot fetch|no such file)"), local_copy(url):
        pass


def test_a_web_address_names_one_file(address: str) -> None:
    # Pages with links used to be treated as folders and read again and again.
    for url in (f"{address}/", f"{address}/traces/?page=1", f"{address}/*.json"):
        with pytest.raises(InputError, match="a web address names one file, not a folder or a pattern"):
            list_url(url)
    assert list_url(f"{address}/page") == [f"{address}/page"]


@pytest.mark.parametrize("chain", ["zip://a.json::{}", "zip://a.json::simplecache::{}", "zip://a.json::http"])
def test_no_other_file_system_reads_from_the_web(address: str, chain: str) -> None:
    url = chain.format(f"{address}/good.json")
    for read in (list_url, lambda url: local_copy(url).__enter__()):
        with pytest.raises(InputError, match="a web address cannot be part of a chained URL"):
            read(url)


def test_of_a_long_file_only_the_beginning_is_copied(address: str) -> None:
    with local_copy(f"{address}/long.json", 100_000) as copy:
        assert 100_000 <= Path(copy).stat().st_size < 20 << 20


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The answers to look-ups of ``outside.example``, in order. 127.0.0.1 counts as public, and 127.0.0.2 as
    private.
    """
    plain, answers = socket.getaddrinfo, list[list[str]]()

    def answer(host: str | bytes | None, *args: Any, **options: Any) -> Any:
        found = answers.pop(0) if host in ("outside.example", b"outside.example") else [host]
        return [place for one in found for place in plain(one, *args, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    monkeypatch.setattr(remote, "_is_private", lambda address: address == "127.0.0.2")
    monkeypatch.setattr(remote, "_PUBLIC", set())
    return answers


_REFUSED = "it leads from the internet to an address in a private network"


def test_a_redirect_inside_a_private_network_is_followed(address: str) -> None:
    with local_copy(f"{address}/other.json") as copy:
        assert Path(copy).read_bytes() == b"{}"


@pytest.mark.parametrize("header", ["", "?uri"])
@pytest.mark.parametrize("found", [["127.0.0.1"], ["127.0.0.1", "127.0.0.2"], ["127.0.0.2", "127.0.0.1"]])
def test_a_redirect_from_outside_to_a_private_network_is_refused(
    address: str, looked_up: list[list[str]], found: list[str], header: str
) -> None:
    # An attacker may add a private address to the DNS entries of a public server.
    looked_up.append(found)
    url = address.replace("127.0.0.1", "outside.example")
    with pytest.raises(InputError, match=_REFUSED), local_copy(f"{url}/inside.json{header}"):
        pass


def test_a_name_that_changes_its_address_does_not_lead_into_a_private_network(
    address: str, looked_up: list[list[str]]
) -> None:
    looked_up.extend([["127.0.0.1"], ["127.0.0.2"]])
    url = address.replace("127.0.0.1", "outside.example") + "/good.json"
    with local_copy(url) as copy:
        assert Path(copy).read_bytes() == b"{}"
    with pytest.raises(InputError, match=_REFUSED), local_copy(url):
        pass


@pytest.mark.parametrize(
    ("address", "private"),
    [("127.0.0.1", True), ("10.1.2.3", True), ("169.254.169.254", True), ("::1", True), ("fe80::1%eth0", True),
     ("::ffff:192.168.0.1", True), ("8.8.8.8", False),
     # NAT64, 6to4, mapped and translated addresses are as private as the IPv4 addresses inside them.
     ("64:ff9b::a01:203", True), ("64:ff9b::808:808", False), ("64:ff9b:1::808:808", True),
     ("2002:7f00:1::1", True), ("2002:808:808::1", False), ("2001:0:7f00:1::1", True),
     ("2001::f7f7:f7f7", True), ("::ffff:8.8.8.8", False), ("::ffff:0:127.0.0.1", True),
     ("::127.0.0.1", True), ("fec0::1", True), ("2606:4700::1111", False)],
)  # fmt: skip
def test_addresses_of_private_networks_are_known(address: str, private: bool) -> None:
    assert remote._is_private(address) == private


def test_a_file_that_would_fill_the_disk_is_given_up(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    class Usage(NamedTuple):
        free: int = 1 << 20

    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage())
    with pytest.raises(InputError, match="half of the free disk space"), local_copy(f"{address}/large.json"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url", ["http://me:secret@127.0.0.1/a.json", "sftp://me:se@cret@host/runs", "http://[:secret@x/"]
)
def test_an_address_with_a_password_is_refused_without_repeating_it(url: str) -> None:
    for read in (list_url, lambda address: local_copy(address).__enter__()):
        with pytest.raises(InputError, match="must not contain a password") as raised:
            read(url)
        assert "cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("first", "then"), [(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100), (b"HTTP/1.1 200 OK\r\n", b"A")]
)
def test_an_answer_that_never_begins_is_given_up(first: bytes, then: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_SILENCE_S", 0.3)
    over = threading.Event()

    class Endless(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.wfile.write(first)
                while not over.wait(0.02):
                    self.wfile.write(then)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Endless) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/x.json"
        try:
            with pytest.raises(InputError, match=f"^{url}: .*did not respond within"), local_copy(url):
                pass
        finally:
            over.set()
            server.shutdown()


def test_a_query_that_signs_an_address_is_no_part_of_the_name(address: str) -> None:
    url = f"{address}/good.json?X-Signature=a/b*c"

    assert list_url(url) == [url]
    with local_copy(url) as copy:
        assert Path(copy).name == "good.json"
    assert not is_text(url)


@pytest.mark.parametrize(
    ("command", "name"),
    [("analyze -q --output-format json", "trace"), ("lint -q --output-format sarif", "trace"), ("analyze", "404"),
     ("analyze", "403"), ("annotate -o drawn.json --select GAP102", "trace"), ("export -o tables/", "trace")],
)  # fmt: skip
def test_what_signs_an_address_is_in_no_output(
    address: str, command: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    url = f"{address}/{name}.json?X-Amz-Signature=5f3a9c1e5f3a9c1e"
    monkeypatch.setattr(sys, "argv", ["habana_perf_tool", *command.split(), url])
    with pytest.raises(SystemExit):
        main()
    written = "".join(capfd.readouterr())
    files = [file for file in tmp_path.rglob("*") if file.is_file()]

    assert "5f3a" not in written
    assert [file for file in files if b"5f3a" in file.read_bytes()] == []
    assert files or "?X-Amz-Signature=redacted" in written
