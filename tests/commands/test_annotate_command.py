"""``annotate`` as a user sees it: the file it writes, its messages, and opening the file in a browser."""

from __future__ import annotations

import gzip
import re
import socket
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs

import orjson
import pytest
from builders.program import Run
from events import document, launch, loader, step, x

from perftool.commands import serve
from perftool.engine.ranks import batch
from perftool.errors import PerfToolError
from perftool.model.annotations import Annotations
from perftool.model.report import Location
from perftool.reporters.perfetto import render_events

# A device that spends most of the time waiting for the data loader.
EVENTS = [step(1, 0, 1000), loader(10, 700), *launch(1, 750, 5, 760, 200), step(2, 1000, 1000), loader(1010, 700),
          *launch(2, 1750, 5, 1760, 200)]  # fmt: skip
TRACE = document(EVENTS, schemaVersion=1)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Write ``run.json`` to the current folder."""
    path = tmp_path / "run.json"
    path.write_bytes(TRACE)
    return path


def ours(data: bytes) -> list[dict]:
    return [event for event in orjson.loads(data)["traceEvents"] if event.get("cat") == "habana_perf_tool"]


def test_the_copy_contains_the_trace_and_the_findings(trace: Path, run: Run) -> None:
    assert run("annotate", "run.json", "-o", "out.json") == 0
    data = Path("out.json").read_bytes()
    assert data.startswith(TRACE[:-2])
    assert data.endswith(TRACE[-2:])
    assert {event["args"]["name"] for event in ours(data) if event.get("name") == "thread_name"} >= {
        "GAP102 dataloader-wait", "idle time by cause",
    }  # fmt: skip
    assert trace.read_bytes() == TRACE
    assert run.out == ""
    said = run.err.splitlines()
    assert said[0].startswith("Wrote out.json with ")
    assert said[1:] == [
        "Open it at https://ui.perfetto.dev, or with --open; the findings are at the top, under perftool.",
        "To see the first finding there: Ctrl+Shift+P, 'Pan to timestamp', 10000",
    ]


def test_all_formats_have_the_same_content(trace: Path, run: Run, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run("annotate", "run.json", "-o", "out.json", "-q") == 0
    assert (run.out, run.err) == ("", "")
    assert run("annotate", "run.json", "-o", "out.json.gz", "-q") == 0
    plain, packed = Path("out.json").read_bytes(), Path("out.json.gz").read_bytes()
    assert gzip.decompress(packed) == plain
    assert run("annotate", "run.json", "-o", "again.json.gz", "-q") == 0
    assert Path("again.json.gz").read_bytes() == packed
    assert run("annotate", "run.json", "-o", "-", "-q") == 0
    assert run.out.encode() == plain


def test_a_copy_is_analysed_like_the_trace(trace: Path, run: Run) -> None:
    assert run("annotate", "run.json", "-o", "once.json", "-q") == 0
    assert run("annotate", "once.json", "-o", "twice.json", "-q") == 0
    assert Path("twice.json").read_bytes() == Path("once.json").read_bytes()
    reports = []
    for name in ("run.json", "once.json"):
        assert run("analyze", name, "--output-format", "json") == 0
        reports.append({**orjson.loads(run.out), "inputs": None})
    assert reports[0] == reports[1]


def test_rules_can_be_chosen(trace: Path, run: Run) -> None:
    assert run("annotate", "run.json", "-o", "out.json", "--select", "GAP102") == 0
    lanes = [
        event["args"]["name"] for event in ours(Path("out.json").read_bytes()) if event.get("name") == "thread_name"
    ]
    assert lanes == ["GAP102 dataloader-wait", "idle time by cause", "critical path: 1"]
    assert run.err.startswith("Wrote out.json with 1 finding drawn in\n")


def test_ranks_share_a_timeline_on_one_clock(tmp_path: Path, run: Run) -> None:
    """The clock of rank 1 is 300 us ahead, so its collectives appear to end 300 us later."""
    for rank, ahead in enumerate((0, 300)):
        events = [step(1, ahead, 2000)]
        for at in (100, 500, 900, 1300):
            events += [*launch(at, ahead + at, 5, ahead + at + 10, 50, "ncclDevKernel_AllReduce_Sum_f32_RING_LL")]
        folder = tmp_path / "ranks"
        folder.mkdir(exist_ok=True)
        info = {"rank": rank, "world_size": 2, "backend": "nccl"}
        (folder / f"rank{rank}.json").write_bytes(document(events, distributedInfo=info))
    assert run("annotate", "ranks", "--select", "GAP101", "-o", "all.json") == 0, run.err
    assert "on the clock of the lowest rank" in run.err
    file = orjson.loads(Path("all.json").read_bytes())
    named = [event for event in file["traceEvents"] if event["ph"] in "MX"]
    names = {event["pid"]: event["args"]["name"] for event in named if event["name"] == "process_name"}
    assert {name.split(":")[0] for name in names.values()} == {
        "rank 0", "rank 1", "perftool (rank 0)", "perftool (rank 1)",
    }  # fmt: skip
    kernels = [(names[event["pid"]], event["ts"]) for event in named if event["name"].startswith("nccl")]
    assert sorted(kernels) == sorted((f"rank {rank}: 0", ts) for rank in (0, 1) for ts in (110.0, 510.0, 910.0, 1310.0))

    assert run("analyze", "all.json") == 2
    assert ": a timeline of several ranks, written by annotate; pass the traces of the ranks" in run.err


@pytest.mark.parametrize(
    ("batch_bytes", "options", "count"),
    [(batch.BATCH_BYTES, [], 2), (batch.BATCH_BYTES, ["--redact"], 0), (1, ["--redact"], 0)],
)
def test_redact_leaves_out_secrets_that_events_of_several_ranks_repeat(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, batch_bytes: int, options: list[str], count: int
) -> None:
    """Ranks that are too large for one store are analysed separately, and the merged store keeps little of their
    metadata.
    """
    monkeypatch.setattr(batch, "BATCH_BYTES", batch_bytes)
    secrets = ["first-of-two-secrets", "other-of-two-secrets"]
    for rank, secret in enumerate(secrets):
        events = [step(1, 0, 2000), *launch(1, 100, 5, 110, 50, f"k {secrets[1 - rank]}")]
        info = {"rank": rank, "world_size": 2, "backend": "nccl"}
        data = document(events, distributedInfo=info, env={"API_TOKEN": secret})
        (tmp_path / f"rank{rank}.json").write_bytes(data)
    arguments = ("rank0.json", "rank1.json", "--select", "GAP101", *options, "-o", "all.json")
    assert run("annotate", *arguments) == 0, run.err
    assert sum(secret in Path("all.json").read_text() for secret in secrets) == count


def test_redact_leaves_out_secrets_that_only_events_contain(tmp_path: Path, run: Run) -> None:
    """Secrets are removed from names and from arguments whose names give them away. Times and counts stay."""
    args = {"apiKey": "event-secret-2", "PIN_PASSWORD": 4711, "max_tokens": 7}
    event = x("op --token=event-secret-1", 100, 50, **args)
    events = [step(1, 0, 2000), event, *launch(1, 300, 5, 310, 50, "event-secret-2")]
    (tmp_path / "run.json").write_bytes(document(events))
    assert run("annotate", "run.json", "--select", "GAP101", "--redact", "-o", "out.json") == 0, run.err

    text = Path("out.json").read_text()
    [clean] = [one for one in orjson.loads(text)["traceEvents"] if "max_tokens" in one.get("args", {})]
    assert "event-secret" not in text
    left = {"apiKey": "redacted", "PIN_PASSWORD": "redacted", "max_tokens": 7}
    assert clean == {**event, "name": "op --token=redacted", "args": left}
    assert "left out as a likely secret: --token, PIN_PASSWORD, apiKey" in run.err


def test_no_cut_secret_is_left_in_the_names_of_lanes_and_bars(tmp_path: Path, run: Run) -> None:
    secret = "Zq8vTr5nLw2kXy7mPd4sHf9jBc3gRt6e"
    thread = {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "t" * 984 + secret}}
    events = [step(1, 0, 2000), thread, *(x("n" * length + secret, 10, 900) for length in (84, 484))]
    (tmp_path / "run.json").write_bytes(document(events, env={"HF_TOKEN": secret}))
    for command, output in (("report", "out.html"), ("annotate", "out.json")):
        assert run(command, "run.json", "--select", "GAP101", "--redact", "-o", output) == 0, run.err
        assert secret[:9] not in Path(output).read_text()


def test_redact_keeps_counters_and_idle_time(trace: Path, run: Run) -> None:
    for options in ((), ("--redact",)):
        assert run("annotate", "run.json", *options, "-o", f"out{len(options)}.json") == 0, run.err
    plain, clean = (ours(Path(f"out{number}.json").read_bytes()) for number in (0, 1))
    assert clean == plain
    assert {"B", "C"} <= {event["ph"] for event in plain}


def test_redact_copies_metadata_that_nest_deeper_than_orjson_writes(tmp_path: Path, run: Run) -> None:
    deep = b'{"a":' * 300 + b'{"API_TOKEN":"hidden-secret"}' + b"}" * 300
    text = document([step(1, 0, 2000), *launch(1, 100, 5, 110, 50, "k")])
    (tmp_path / "run.json").write_bytes(b'{"env":' + deep + b"," + text[1:])
    assert run("annotate", "run.json", "--select", "GAP101", "--redact", "-o", "out.json") == 0, run.err
    assert deep.replace(b"hidden-secret", b"redacted") in Path("out.json").read_bytes()


def test_redact_leaves_out_secrets_in_repeated_members(tmp_path: Path, run: Run) -> None:
    """If an object has several members of the same name, only the last one is read and searched for secrets."""
    text = document([step(1, 0, 2000), *launch(1, 100, 5, 110, 50, "k")])
    hidden, shown = b'{"env":{"API_TOKEN":"hidden-secret"},', b'"env":{"API_TOKEN":"sho\\u0077n-secret"},'
    (tmp_path / "run.json").write_bytes(hidden + shown + text[1:])
    assert run("annotate", "run.json", "--select", "GAP101", "--redact", "-o", "out.json") == 0, run.err

    data = orjson.loads(Path("out.json").read_bytes())
    assert (data["env"], len(data["traceEvents"]) > 2) == ({"API_TOKEN": "redacted"}, True)
    assert "hidden-secret" not in Path("out.json").read_text()


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "no output": (("run.json",), "annotate needs -o FILE for the annotated trace, or --open to show it"),
    "no such file": (("none.json", "-o", "out.json"), "none.json: no such file"),
    "stdin": (
        ("-", "-o", "out.json"),
        "annotate reads the trace twice, so it cannot come from stdin or a pipe; give a file",
    ),
    "the trace itself": (
        ("run.json", "-o", "./run.json"),
        "./run.json: an input of this run, and inputs are never overwritten; use another file",
    ),
    "other name": (("run.json", "-o", "out.txt"), "out.txt: the name must end in .json or .json.gz"),
    "stdout to a browser": (
        ("run.json", "-o", "-", "--open"),
        "--open needs a file: it cannot show what goes to stdout",
    ),
    "no folder": (("run.json", "-o", "no/out.json"), "no/out.json: cannot write (No such file or directory)"),
    "a log": (("run.log", "-o", "out.json"), "run.log: no trace to annotate"),
    "a table": (
        ("ops.csv", "-o", "out.json"),
        "ops.csv: a CSV file, but annotate needs a JSON trace",
    ),
    "not a trace": (
        ("other.json", "-o", "out.json"),
        "other.json: JSON without a traceEvents array, so not a trace",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_use_gives_one_sentence(case: str, trace: Path, run: Run) -> None:
    Path("run.log").write_text("[10:00:00.000000][PT_FALLBACK] CPU fallback op: aten::nonzero\n")
    Path("other.json").write_text('{"a": 1}')
    Path("ops.csv").write_text(
        "Name,Trace Source,Engine,Event type,Timestamp[usec]\nconv,HW,[HD0] TPC 5,BEGIN,1\nconv,HW,[HD0] TPC 5,END,2\n"
    )
    arguments, message = WRONG[case]
    assert (run("annotate", *arguments), run.out, run.err) == (2, "", f"habana_perf_tool: {message}\n")
    assert trace.read_bytes() == TRACE
    assert sorted(path.name for path in trace.parent.iterdir()) == ["ops.csv", "other.json", "run.json", "run.log"]


DRAWN = Annotations(
    0, 9001, 1, Location(ts_ns=5_000_000, dur_ns=3_000_000), Location(ts_ns=6_000_000, dur_ns=7), (), ()
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[threading.Thread, str]]:
    """Return a function that starts serving a file and returns the serving thread and the file's address."""
    monkeypatch.setattr(serve, "_open_browser", lambda address: True)
    file = tmp_path / "a b.json"
    file.write_bytes(TRACE)
    port = free_port()

    def start() -> tuple[threading.Thread, str]:
        thread = threading.Thread(target=serve.serve_once, args=(file, DRAWN, port), daemon=True)
        thread.start()
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                thread.join(0.02)
        return thread, f"http://127.0.0.1:{port}/a%20b.json"

    return start


def asked(address: str, **headers: str) -> urllib.request.Request:
    """Return a request from the Perfetto UI, unless ``headers`` states another origin."""
    return urllib.request.Request(address, headers={"Origin": serve.UI, **headers})


REFUSED = [
    ({"Host": "evil.example:9001"}, 421), ({"Host": "evil.example"}, 421), ({"Host": "127.0.0.1"}, 421),
    ({"Origin": "https://evil.example"}, 403), ({"Origin": "null"}, 403),
]  # fmt: skip


def test_only_the_perfetto_ui_is_answered(served) -> None:
    thread, address = served()
    for headers, status in REFUSED:
        with pytest.raises(urllib.error.HTTPError, match=str(status)):
            urllib.request.urlopen(asked(address, **headers))
    with urllib.request.urlopen(address) as answer:
        assert answer.read() == TRACE
    thread.join(0.2)
    assert thread.is_alive()
    with urllib.request.urlopen(asked(address)) as answer:
        assert answer.read() == TRACE
    thread.join(60)
    assert not thread.is_alive()


def test_the_file_is_served_until_it_is_fetched(served) -> None:
    thread, address = served()
    for method in ("OPTIONS", "HEAD"):
        with urllib.request.urlopen(urllib.request.Request(address, method=method)) as answer:
            assert answer.headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(address.replace("json", "txt"))
    assert thread.is_alive()
    with urllib.request.urlopen(asked(address)) as answer:
        assert answer.headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
        assert answer.headers["Content-Length"] == str(len(TRACE))
        assert answer.read() == TRACE
    thread.join(60)
    assert not thread.is_alive()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address)


def test_an_idle_connection_does_not_keep_others_waiting(served) -> None:
    thread, address = served()
    with socket.create_connection(("127.0.0.1", int(address.split(":")[2].split("/")[0]))):
        with urllib.request.urlopen(asked(address), timeout=60) as answer:
            assert answer.read() == TRACE
        thread.join(60)
    assert not thread.is_alive()


def test_a_taken_port_gives_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PerfToolError, match=f"^port {port} of 127.0.0.1, the only port that .* cannot be used"):
            serve.serve_once(tmp_path / "x.json", DRAWN, port)


def test_no_browser_gives_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serve, "_open_browser", lambda address: False)
    monkeypatch.setattr(serve, "_PATIENCE_S", 0.01)
    with pytest.raises(PerfToolError, match=r"^no browser fetched x\.json within 0 minutes$"):
        serve.serve_once(tmp_path / "x.json", DRAWN, port := free_port())
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"Open this in a browser on this machine (or forward port {port} to the browser's machine):",
        serve.ui_address("x.json", DRAWN, port),
    ]


def test_the_address_names_the_file_and_the_first_finding() -> None:
    address = serve.ui_address("a b.json", DRAWN)
    assert address.startswith("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:9001/a%20b.json&startupCommands=%5B")
    assert address.endswith("&ts=6000000&dur=7&visStart=5001000&visEnd=7999000")


def test_the_address_expands_the_process_that_the_copy_adds() -> None:
    added = orjson.loads(b"[" + b",".join(render_events(DRAWN)) + b"]")
    process = next(event["args"]["name"] for event in added if event["name"] == "process_name")
    (command,) = orjson.loads(parse_qs(serve.ui_address("a.json", DRAWN).split("?", 1)[1])["startupCommands"][0])
    assert re.search(command["args"][0], process)


@pytest.mark.parametrize(
    ("environment", "opened"), [({}, False), ({"DISPLAY": ":0"}, True), ({"DISPLAY": ":0", "CI": "true"}, False)]
)
def test_a_browser_is_opened_only_where_there_is_a_screen(
    environment: dict[str, str], opened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "CI"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.platform", "linux")
    asked: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: asked.append(address) or True)
    assert (serve._open_browser("there"), asked) == (opened, ["there"] if opened else [])


def test_open_hands_over_a_copy_and_leaves_nothing_behind(
    trace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, bytes, int]] = []
    monkeypatch.setattr(
        serve, "serve_once", lambda file, drawn: seen.append((file.name, file.read_bytes(), drawn.findings))
    )
    assert run("annotate", "run.json", "--open", "--select", "GAP102") == 0
    assert [(name, len(ours(gzip.decompress(data))) > 0, findings) for name, data, findings in seen] == [
        ("run.annotated.json.gz", True, 1)
    ]
    assert (run.out, run.err) == ("", "")
    assert [path.name for path in trace.parent.iterdir()] == ["run.json"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems allow only names in Unicode")
@pytest.mark.parametrize("options", [(), ("-o", "\udcfe.json.gz")], ids=["temporary file", "named file"])
@pytest.mark.parametrize(
    "name", ["\udcff.json", "a" * 247 + ".json", "\N{PILE OF POO}" * 60 + ".json"], ids=["not UTF-8", "long", "wide"]
)
def test_open_accepts_any_name(
    name: str, options: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A name that is not UTF-8, and names that leave no room for the ending of the copy."""
    fetched: list[Future[bytes]] = []

    def fetch(address: str) -> bytes:
        place = address.partition("?url=")[2].partition("&")[0]
        with urllib.request.urlopen(asked(place), timeout=60) as answer:
            return bytes(answer.read())

    (tmp_path / name).write_bytes(TRACE)
    monkeypatch.setattr(serve, "serve_once", partial(serve.serve_once, port=free_port()))
    with ThreadPoolExecutor() as browser:
        monkeypatch.setattr(
            serve, "_open_browser", lambda address: fetched.append(browser.submit(fetch, address)) or True
        )
        assert run("annotate", "--open", "--select", "GAP102", "-q", *options, "--", name) == 0, run.err
    assert len(ours(gzip.decompress(fetched[0].result()))) > 0
