"""The recording is saved before anything is added to it. If an addition fails, only that addition is lost."""

from __future__ import annotations

import errno
import gzip
import json
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stores import steps_in  # noqa: E402
from warm_python import warm_python  # noqa: E402

import perftool  # noqa: E402
from perftool.integrations import call_lines, saving  # noqa: E402
from perftool.integrations.call_lines import Calls, is_installed, is_users  # noqa: E402
from perftool.integrations.saving import Additions, save_trace, with_additions  # noqa: E402
from perftool.model.own_code import INSTALLED_KEY  # noqa: E402
from perftool.model.recorded_on import RECORDED_KEY  # noqa: E402


@pytest.fixture
def recorded() -> Any:
    """A recording, which PyTorch can write only once."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True) as profiler:
        for _ in range(3):
            torch.ones(4).add(1)
            profiler.step()
    return profiler


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def said(action: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        action()
    return [str(warning.message) for warning in found]


def test_a_trace_is_saved_with_lines_and_facts(tmp_path: Path, recorded: Any) -> None:
    saved = save_trace(recorded, tmp_path / "a.pt.trace.json.gz", lambda trace: {"version": 1, "was": trace.name})

    assert list(tmp_path.iterdir()) == [saved] == [tmp_path / "a.pt.trace.json.gz"]
    trace = read(saved)
    assert trace[RECORDED_KEY] == {"version": 1, "was": "a.pt.trace.json"}
    assert INSTALLED_KEY in trace
    assert any("Call line" in event.get("args", {}) for event in trace["traceEvents"])


FAILURES = [
    UnicodeDecodeError("utf-8", b"\xdb", 0, 1, "invalid continuation byte"),
    MemoryError(),
    OSError(errno.ENOSPC, "No space left on device"),
    RuntimeError("a bug of ours"),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
@pytest.mark.parametrize("extra", ["calls_of", "facts", "with_lines", "gzipped", "whole_file"])
def test_a_failed_addition_loses_only_that_addition(
    tmp_path: Path, recorded: Any, monkeypatch: pytest.MonkeyPatch, extra: str, failure: Exception
) -> None:
    def fails(*_: object) -> Any:
        raise failure

    if extra != "facts":
        monkeypatch.setattr(saving, extra, fails)
    places = []
    heard = said(lambda: places.append(save_trace(recorded, tmp_path / "a.pt.trace.json.gz", fails)))

    assert list(tmp_path.iterdir()) == places
    assert steps_in(places[0])
    assert all(text.startswith("perftool: the trace is saved without") for text in heard)
    missing = {
        "calls_of": "lines of its calls",
        "facts": "facts about the machine",
        "with_lines": "perftool's additions",
    }
    assert any(missing.get(extra, "compression") in text for text in heard)


def test_an_interrupt_while_an_extra_is_added_leaves_the_plain_trace(
    tmp_path: Path, recorded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(saving, "calls_of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_trace(recorded, tmp_path / "a.pt.trace.json.gz")

    assert [path.name for path in tmp_path.iterdir()] == ["a.pt.trace.json"]


def test_a_folder_that_is_gone_sends_the_trace_to_the_temporary_one(
    tmp_path: Path, recorded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(saving.tempfile, "tempdir", str(tmp_path / "tmp"))
    # Shared memory may have more space than the temporary folder, and would be chosen in that case.
    monkeypatch.setattr(saving, "_SHARED_MEMORY", tmp_path / "absent")
    places = []
    [text] = said(lambda: places.append(save_trace(recorded, tmp_path / "gone" / "a.pt.trace.json.gz")))

    assert places[0].is_relative_to(tmp_path / "tmp")
    assert f"{tmp_path / 'gone'} no longer exists; the trace goes to" in text
    assert steps_in(places[0])


LIMITED = """
import resource, sys, torch
from pathlib import Path
from perftool.integrations.saving import save_trace
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
    for _ in range(300): torch.ones(4) + 1
sys.dont_write_bytecode = True
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
print(save_trace(profiler, Path(sys.argv[1]) / "a.pt.trace.json.gz"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of POSIX")
def test_the_beginning_of_a_trace_that_fits_nowhere_is_kept(tmp_path: Path) -> None:
    done = subprocess.run([*warm_python(), "-c", LIMITED, str(tmp_path)], capture_output=True, text=True)

    place = Path(done.stdout.splitlines()[-1])
    assert list(tmp_path.iterdir()) == [place]
    assert "the trace is truncated; the part that was written is in" in done.stderr
    [found] = perftool.analyze(place, rules=[]).inputs
    assert (found.status, found.events > 100) == ("truncated", True)


class Garbled:
    """A frame whose code object has been freed, so that PyTorch returns whatever its memory contains now."""

    line_number = 5

    @property
    def file_name(self) -> str:
        return b"\xdb".decode()

    function_name = file_name


def event(caller: Any, callsite: Any, *children: Any) -> Any:
    fields = SimpleNamespace(caller=caller, callsite=callsite)
    return SimpleNamespace(children=list(children), extra_fields=fields, start_time_ns=len(children))


def test_frames_whose_names_cannot_be_read_are_left_out() -> None:
    mine = SimpleNamespace(file_name="train.py", line_number=5, function_name="train")
    events = [event(mine, Garbled(), event(Garbled(), mine)), event(Garbled(), Garbled(), 1, 2)]
    events[1].children = []

    assert call_lines._calls(events).lines == {1: 5}


def test_packages_that_pip_installed_in_another_folder_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("timm/model.py", "own/train.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    (tmp_path / "timm-1.0.dist-info").mkdir()
    (tmp_path / "timm-1.0.dist-info" / "RECORD").write_text("timm/model.py,sha256=0,10\n")
    library, own = (SimpleNamespace(file_name=f"{name}.py", line_number=5) for name in ("timm/model", "own/train"))

    calls = call_lines._calls([event(library, None), event(own, None)])
    # A package's function that calls no other function.
    leaf = call_lines._calls([event(own, library)])

    assert (calls.lines, calls.installed) == ({0: 5}, {"timm"})
    assert (leaf.lines, leaf.installed) == ({0: 5}, {"timm"})


def test_the_first_import_folder_with_the_file_decides_whether_it_is_installed(tmp_path: Path) -> None:
    """A checkout shadows the installed package. Debian's packages come without pip's lists of files."""
    checkout, packages = tmp_path / "checkout", tmp_path / "dist-packages"
    for folder in (checkout, packages):
        (folder / "timm").mkdir(parents=True)
        (folder / "timm" / "model.py").touch()

    assert not is_installed("timm/model.py", [str(tmp_path), str(checkout), str(packages)])
    assert is_installed("timm/model.py", [str(tmp_path), str(packages), str(checkout)])
    assert not is_installed("timm/other.py", [str(packages)])


def test_a_file_that_an_installed_package_wrote_is_not_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = tmp_path / "timm.models.vit_made_x1.py"
    written.touch()
    (tmp_path / "dist-packages" / "timm").mkdir(parents=True)
    (tmp_path / "dist-packages" / "timm" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", ["/nowhere"])
    assert is_users(str(written))

    monkeypatch.setattr(sys, "path", [str(tmp_path / "dist-packages")])

    assert not is_users(str(written))


def test_additions_are_inserted_into_the_events_of_functions() -> None:
    text = (
        '{\n    "baseTimeNanoseconds": 1000000,\n    "traceEvents": [\n'
        '  {\n    "ts": 5.250,\n    "args": {\n      "Python parent id": null, "Python id": 1\n    }\n  },\n'
        '  {\n    "ts": 6.000,\n    "dur": 1.000\n    ,\n    "args": {\n      "Python parent id": 1\n    }\n  },\n'
        '  {\n    "ts": 6.000,\n    "args": {\n      "External id": 1\n    }\n  }\n  ]}'
    )
    calls = Calls({1_006_000: 43}, {"transformers"})

    whole = b"".join(with_additions([text.encode()], Additions(calls, {"version": 1}))).decode()

    made = json.loads(whole)
    assert (made[INSTALLED_KEY], made[RECORDED_KEY]) == (["transformers"], {"version": 1})
    assert [event["args"].get("Call line") for event in made["traceEvents"]] == [None, 43, None]


def test_pieces_end_where_events_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "_PIECE_BYTES", 40)
    data = b'{ "a": [' + b"".join(b'\n  {\n "ts": %d\n  },' % n for n in range(9)) + b"]}"
    at = 0

    def take(count: int) -> bytes:
        nonlocal at
        at += count
        return data[at - count : at]

    pieces = list(saving.event_pieces(take))

    assert b"".join(pieces) == data
    assert len(pieces) > 3
    assert all(piece.startswith(b"\n  {") for piece in pieces[1:])
