"""``record --server`` with a small server in this process in place of vLLM."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from perftool.errors import InputError, PerfToolError
from perftool.integrations.server import client
from perftool.integrations.server.client import server_at
from perftool.integrations.server.profile_folder import profile_folder
from perftool.integrations.server.recording import record_server

PAGE = b"# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total 8.0\n"
TRACE = '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]}'


# Sent one byte at a time.
DRIPS = b"# a page\n" * 200
CHUNKS = b"2\r\n#\n\r\n" * 100_000 + b"0\r\n\r\n"
# Python would read everything that follows.
NEGATIVE = b"-1\r\n" + b"#" * 1_000_000
# A page that breaks off, sent with the length of the whole page, or in a chunk that is too short.
CUT = PAGE[:-5]
CUT_CHUNK = b"50\r\n" + PAGE[:20]


class _Asked(ThreadingHTTPServer):
    """Answers a request for a path with the entry in ``answers``, and keeps all requests."""

    answers: dict[str, tuple[int, bytes]]
    asked: list[str]
    ended: threading.Event
    writes: Path | None = None
    elsewhere: str = ""
    slow: str = ""
    # The answer to the second request for the metrics page: a status, or 0 for a connection that breaks off.
    second_page: int = 200


class _Handler(BaseHTTPRequestHandler):
    server: _Asked

    def do_GET(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        status, body = self.server.answers.get(self.path, (404, b""))
        if self.path == self.server.slow:
            self.server.ended.wait(60)
        if self.path == "/stop_profile" and self.server.writes:
            (self.server.writes / "rank0.1.pt.trace.json").write_text(TRACE)
        if self.path == "/metrics" and self.server.asked.count("GET /metrics") > 1:
            status = self.server.second_page
            if not status:
                return
        self.send_response(status)
        if status == 307:
            self.send_header("Location", self.server.elsewhere)
        length = len(PAGE if body == CUT else body)
        in_chunks = body in (CHUNKS, NEGATIVE, CUT_CHUNK)
        self.send_header(*(("Transfer-Encoding", "chunked") if in_chunks else ("Content-Length", str(length))))
        self.close_connection = True
        self.end_headers()
        with suppress(OSError):
            for piece in [body] if body != DRIPS else (body[at : at + 1] for at in range(len(body))):
                self.wfile.write(piece)
                if body == DRIPS:
                    self.server.ended.wait(0.01)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def _serving(**answers: tuple[int, bytes]) -> Iterator[_Asked]:
    server = _Asked(("127.0.0.1", 0), _Handler)
    server.answers, server.asked = {f"/{path}": answer for path, answer in answers.items()}, []
    server.ended = threading.Event()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _url(server: _Asked) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


def test_profile_and_metrics_become_one_folder(tmp_path: Path) -> None:
    profiles, folder = tmp_path / "profiles", tmp_path / "made"
    profiles.mkdir()
    folder.mkdir()
    (profiles / "old.pt.trace.json").write_text(TRACE)
    os.utime(profiles / "old.pt.trace.json", (0, 0))
    with _serving(metrics=(200, PAGE), start_profile=(200, b""), stop_profile=(200, b"")) as server:
        server.writes = profiles
        made = record_server(server_at(_url(server)), 0.01, folder, profiles)
        assert server.asked == ["GET /metrics", "POST /start_profile", "POST /stop_profile", "GET /metrics"]
    assert {path.name for path in folder.iterdir()} == {
        "metrics_before.txt", "metrics_after.txt", "rank0.1.pt.trace.json",
    }  # fmt: skip
    assert (made.missing, made.idle) == (None, True)
    assert (folder / "metrics_after.txt").read_bytes() == PAGE


def test_a_server_without_a_profiler(tmp_path: Path) -> None:
    with _serving(metrics=(200, PAGE)) as server, pytest.raises(InputError, match="has no profiler: start vLLM with"):
        record_server(server_at(_url(server)), 0.01, tmp_path, None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("second_page", [0, 503])
def test_a_missing_second_page_loses_no_trace(tmp_path: Path, second_page: int) -> None:
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    with _serving(metrics=(200, PAGE), start_profile=(200, b""), stop_profile=(200, b"")) as server:
        server.writes, server.second_page = profiles, second_page
        command = [sys.executable, "-m", "perftool", "record", "--server", _url(server), "--seconds", "0.1"]
        to = ["--profile-folder", str(profiles), "-o", "made", "--no-report"]
        done = subprocess.run([*command, *to], cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False)
    (folder,) = (tmp_path / "made").iterdir()
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["metrics_before.unused", "rank0.1.pt.trace.json"]
    assert "the server sent no metrics page after the recording" in done.stderr
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)


@pytest.mark.parametrize(("status", "stops"), [(504, True), (400, False)])
def test_a_profiler_that_may_have_started_is_stopped(tmp_path: Path, status: int, stops: bool) -> None:
    with _serving(start_profile=(status, b""), stop_profile=(200, b"")) as server:
        with pytest.raises(InputError, match=rf"cannot be started \(HTTP {status}\)"):
            record_server(server_at(_url(server)), 0.01, tmp_path, None)
        assert ("POST /stop_profile" in server.asked) == stops


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    with _serving() as other, _serving(start_profile=(307, b"")) as server:
        server.elsewhere = f"{_url(other)}/start_profile"
        with pytest.raises(InputError, match="redirects are not followed"):
            record_server(server_at(_url(server)), 0.01, tmp_path / "made", None)
        assert other.asked == []


def test_no_proxy_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _serving() as proxy, _serving(start_profile=(500, b"")) as server:
        monkeypatch.setenv("http_proxy", _url(proxy))
        with pytest.raises(InputError, match=r"cannot be started \(HTTP 500\)"):
            record_server(server_at(_url(server)), 0.01, tmp_path / "made", None)
        assert proxy.asked == []


def test_traces_in_an_unknown_place(tmp_path: Path) -> None:
    with _serving(start_profile=(200, b""), stop_profile=(200, b"")) as server:
        made = record_server(server_at(_url(server)), 0.01, tmp_path / "made", tmp_path / "nothing")
        assert (made.traces, made.pages, made.idle) == ((), (), False)
        assert "no new trace" in (made.missing or "")


def test_other_files_in_the_folder_of_a_server_are_ignored(tmp_path: Path) -> None:
    profiles, folder = tmp_path / "profiles", tmp_path / "made"
    (profiles / "folder.trace.json.gz").mkdir(parents=True)
    folder.mkdir()
    os.mkfifo(profiles / "pipe.pt.trace.json")
    (profiles / "nowhere.pt.trace.json").symlink_to("gone")
    (tmp_path / "private").write_text(TRACE)
    (profiles / "link.pt.trace.json").symlink_to(tmp_path / "private")
    (profiles / "real.pt.trace.json").write_text(TRACE)
    for rank in ("dp0", "dp1"):
        (profiles / rank).mkdir()
        (profiles / rank / "rank0.pt.trace.json").write_text(TRACE)
    with _serving(start_profile=(200, b""), stop_profile=(200, b"")) as server:
        made = record_server(server_at(_url(server)), 0.01, folder, profiles)
    names = ["dp0-rank0.pt.trace.json", "dp1-rank0.pt.trace.json", "real.pt.trace.json"]
    assert [trace.name for trace in made.traces] == names
    assert sorted(path.name for path in folder.iterdir()) == names


@pytest.mark.parametrize("linked", [True, False])
def test_traces_whose_names_become_alike_are_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    profiles, folder = tmp_path / "profiles", tmp_path / "made"
    (profiles / "dp" / "0").mkdir(parents=True)
    folder.mkdir()
    (profiles / "dp" / "0" / "rank0.pt.trace.json").write_text(TRACE)
    (profiles / "dp-0").mkdir()
    (profiles / "dp-0" / "rank0.pt.trace.json").write_text(f"{TRACE} ")
    if not linked:
        monkeypatch.setattr(os, "link", _no_link)
    with _serving(start_profile=(200, b""), stop_profile=(200, b"")) as server:
        made = record_server(server_at(_url(server)), 0.01, folder, profiles)
    assert sorted(trace.name for trace in made.traces) == ["2-dp-0-rank0.pt.trace.json", "dp-0-rank0.pt.trace.json"]
    assert sorted(trace.read_text() for trace in made.traces) == [TRACE, f"{TRACE} "]


def _no_link(*_: object) -> None:
    raise OSError("another file system")


def test_no_page_is_written_through_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "metrics_after.txt").symlink_to(victim)
    good = _serving(metrics=(200, PAGE), start_profile=(200, b""), stop_profile=(200, b""))
    with good as server, pytest.raises(PerfToolError, match="File exists"):
        record_server(server_at(_url(server)), 0.01, tmp_path / "made", None)
    assert victim.read_text() == "mine"


@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
@pytest.mark.parametrize(
    ("slow", "number", "code"),
    [("start", signal.SIGINT, 130), ("start", signal.SIGTERM, 143), ("stop", signal.SIGTERM, 143)],
)
def test_a_signal_stops_the_profiler_and_then_soon_ends_record(
    tmp_path: Path, slow: str, number: signal.Signals, code: int
) -> None:
    with _serving(start_profile=(200, b""), stop_profile=(200, b"")) as server:
        server.slow = f"/{slow}_profile"
        command = [sys.executable, "-m", "perftool", "record", "--server", _url(server), "--seconds", "60"]
        # Shells may start background programs, such as these tests, with SIGINT ignored.
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            process = subprocess.Popen([*command, "--no-report"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        finally:
            signal.signal(signal.SIGINT, handler)
        with process:
            while "POST /start_profile" not in server.asked:
                time.sleep(0.05)
            time.sleep(0.3)
            process.send_signal(number)
            begun = time.monotonic()
            assert process.wait(60) == code
            assert time.monotonic() - begun < 20
        assert "POST /stop_profile" in server.asked
    # The folder of an abandoned recording is removed.
    assert list((tmp_path / "perftool_record").iterdir()) == []


def _listening(proc: Path, words: list[str], variables: list[str]) -> Path:
    """Create the entries in ``proc`` for a process that listens on port 0x1FBB."""
    process = proc / "42"
    (process / "fd").mkdir(parents=True)
    (proc / "net").mkdir()
    header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    row = "   0: 0100007F:1FBB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 777 1 0 100\n"
    (proc / "net" / "tcp").write_text(header + row)
    (process / "fd" / "3").symlink_to("socket:[777]")
    (process / "cmdline").write_bytes("\0".join(words).encode())
    (process / "environ").write_bytes("\0".join(variables).encode())
    (process / "cwd").symlink_to("/work")
    return process


def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    with _serving() as server:
        url = _url(server)
    with pytest.raises(InputError, match="no answer"):
        record_server(server_at(url), 0.01, tmp_path / "made", None)


@pytest.mark.parametrize(
    "address", ["localhost:8000", "ftp://a", "http://", "http://a:b", "http://u@a:1", "http://a/v1"]
)
def test_addresses(address: str) -> None:
    with pytest.raises(InputError, match=r"expected http://HOST:PORT"):
        server_at(address)


@pytest.mark.parametrize(
    "address", ["http://me:secret@a:1", "http://me:secret@a:b", "ftp://me:secret@a", "me:secret@a"]
)
def test_no_message_contains_a_password(address: str) -> None:
    with pytest.raises(InputError, match="without a user name or password") as refused:
        server_at(address)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        (["vllm", "serve", "--profiler-config", json.dumps({"torch_profiler_dir": "made"})], []),
        (["vllm", "serve", f"--profiler-config={json.dumps({'torch_profiler_dir': 'made'})}"], []),
        (["vllm", "serve", "--profiler-config.torch_profiler_dir", "made"], []),
        (["sglang"], ["SGLANG_TORCH_PROFILER_DIR=made"]),
    ],
)
def test_the_folder_of_a_server_on_this_machine(tmp_path: Path, words: list[str], variables: list[str]) -> None:
    process = _listening(tmp_path, words, variables)
    assert profile_folder(0x1FBB, tmp_path) == Path("/work/made")
    assert profile_folder(1, tmp_path) is None
    shutil.rmtree(process)
    assert profile_folder(0x1FBB, tmp_path) is None


def test_a_server_that_sends_too_slowly_or_too_much_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_SHORT_S", 0.3)
    monkeypatch.setattr(client, "_LONGEST", 10_000)
    with _serving(metrics=(200, DRIPS)) as server, pytest.raises(InputError, match=r"no answer \(timed out\)"):
        server_at(_url(server)).metrics()
    with _serving(metrics=(200, b"#" * 10_001)) as server, pytest.raises(InputError, match=r"larger than 0 MiB"):
        server_at(_url(server)).metrics()


def test_a_page_in_short_chunks_takes_no_more_memory_than_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Handler, "protocol_version", "HTTP/1.1")
    with _serving(metrics=(200, CHUNKS)) as server:
        tracemalloc.start()
        try:
            assert server_at(_url(server)).metrics() == b"#\n" * 100_000
            assert tracemalloc.get_traced_memory()[1] < 6 << 20
        finally:
            tracemalloc.stop()


def test_a_chunk_of_negative_length_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Handler, "protocol_version", "HTTP/1.1")
    monkeypatch.setattr(client, "_SHORT_S", 3)
    with (
        _serving(metrics=(200, NEGATIVE)) as server,
        pytest.raises(InputError, match="an HTTP chunk has no valid length"),
    ):
        server_at(_url(server)).metrics()


@pytest.mark.parametrize("body", [CUT, CUT_CHUNK], ids=["Content-Length", "chunks"])
def test_a_response_that_breaks_off_is_no_answer(body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Handler, "protocol_version", "HTTP/1.1")
    with (
        _serving(metrics=(200, body), start_profile=(200, b""), stop_profile=(200, b"")) as server,
        pytest.raises(InputError, match=rf"^{_url(server)}: no answer \(the response broke off\)$"),
    ):
        record_server(server_at(_url(server)), 0.01, tmp_path, None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs a second address of this machine")
def test_the_time_limit_covers_all_addresses_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_SHORT_S", 0.3)
    with _serving(metrics=(200, DRIPS)) as server, socket.create_server(("127.0.0.2", 0), backlog=0) as silent:
        # A client that connects to a socket with a full queue has to wait.
        queue = [socket.socket() for _ in range(4)]
        for one in queue:
            one.setblocking(False)
            one.connect_ex(silent.getsockname())
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in
                 (*[silent.getsockname()] * 3, server.server_address)]  # fmt: skip
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        begun = time.monotonic()
        with pytest.raises(InputError, match=r"no answer \(timed out\)"):
            server_at("http://outside.example").metrics()
        assert time.monotonic() - begun < 0.8
        server.ended.set()
        for one in queue:
            one.close()


def test_an_impossible_host_gives_one_sentence() -> None:
    with pytest.raises(InputError, match=r"http://a\.\.b:80: no answer"):
        server_at("http://a..b:80").metrics()


@pytest.mark.parametrize("config", ["[" * 100_000, '{"torch_profiler_dir": 7}'], ids=["deep", "no text"])
def test_a_command_line_that_names_no_folder(tmp_path: Path, config: str) -> None:
    _listening(tmp_path, ["vllm", "--profiler-config", config], [])
    assert profile_folder(0x1FBB, tmp_path) is None
