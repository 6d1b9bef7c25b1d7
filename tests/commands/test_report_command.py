"""``report`` writes an HTML file, or says why it cannot."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
from builders.reports import starved
from events import document, kernel, runtime, step, x

from perftool.cli import main
from perftool.engine.ranks import batch

# The rule that finds something in ``starved``. These tests are not about the others.
ONE = ("--select", "GAP102")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """Return a function that runs ``report`` in a folder with one trace and returns exit code, stdout and stderr."""
    (tmp_path / "run.json").write_bytes(document(starved()))
    (tmp_path / "text.json").write_bytes(b"hello")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["habana_perf_tool", "report", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        return (caught.value.code or 0, *capfd.readouterr())

    return call


def test_a_file_is_written_completely_and_named(run, tmp_path: Path) -> None:
    assert run("run.json", *ONE, "--static", "-o", "run.html") == (0, "", "Wrote run.html\n")
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert page.endswith("</html>\n")
    assert "run.json" in page
    assert str(tmp_path) not in page


def test_a_page_goes_to_a_pipe(run) -> None:
    code, out, err = run("run.json", *ONE, "--static", "--quiet")
    assert (code, out.startswith("<!doctype html>"), err) == (0, True, "")


def test_the_scripts_are_in_the_page_unless_it_is_static(run) -> None:
    assert "DecompressionStream" in run("run.json", *ONE, "-q")[1]
    assert "<script" not in run("run.json", *ONE, "-q", "--static")[1]


def test_a_terminal_gets_a_sentence_instead_of_a_page(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    code, out, err = run("run.json")
    assert (code, out) == (2, "")
    assert err == "habana_perf_tool: report writes an HTML file; name it with -o, such as -o run.html\n"


def test_rules_are_selected_as_everywhere(run) -> None:
    assert 'id="GAP102"' in run("run.json", "-q", "--static", *ONE)[1]
    assert 'id="GAP102"' not in run("run.json", "-q", "--static", "--select", "GAP", "--ignore", "GAP102")[1]


def test_an_unreadable_file_next_to_a_readable_one_is_a_finding(run) -> None:
    code, out, _ = run("run.json", "text.json", "-q", "--static", *ONE)
    assert code == 0
    assert 'id="TRC000"' in out
    assert '<span class="status unreadable">unreadable</span>' in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "report needs PATHS: files, folders, globs, or '-'"),
        (("none.json", "-o", "r.html"), "none.json: no such file"),
        (("run.json", *ONE, "-q", "--static", "-o", "no/such/folder.html"), "no/such/folder.html: cannot write"),
    ],
)
def test_impossible_requests_give_one_sentence(run, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_links_to_sources_point_at_their_files(run, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Links to sources inside the project and in a folder outside, from a page in a third folder."""
    library = tmp_path_factory.mktemp("my lib")
    (tmp_path / "pyproject.toml").write_text(f'[tool.habana_perf_tool]\nsource-roots = ["{library.as_posix()}"]\n')
    (tmp_path / "pages").mkdir()
    (library / "nets").mkdir()
    files = [tmp_path / "train.py", library / "nets" / "net.py"]
    events = starved()
    for file, at, dur in zip(files, (0, 20_000), (20_000, 10_000), strict=True):
        file.touch()
        events.append(x(f"/home/u/{file.parent.name}/{file.name}(7): main", at, dur, cat="python_function"))
    (tmp_path / "run.json").write_bytes(document(events))

    assert run("run.json", *ONE, "--static", "-q", "--trust-config", "-o", "pages/run.html") == (0, "", "")

    links = set(re.findall('class="source" href="([^"]+)"', (tmp_path / "pages" / "run.html").read_text()))
    assert {(tmp_path / "pages" / unquote(link)).resolve() for link in links} == set(files)


@pytest.mark.parametrize("options", [(), ("--redact",)])
def test_secrets_of_events_are_left_out_of_the_page(run, tmp_path: Path, options: tuple[str, ...]) -> None:
    """The page shows names, and text in a name may be a secret that only an argument of another event reveals."""
    events = starved()
    named = {one["name"] for one in events if one.get("cat") == "kernel"}
    for event in events:
        if event["name"] in named:
            event["name"] = "k --token=event-secret-1 event-secret-2"
    events[-1].setdefault("args", {})["apiKey"] = "event-secret-2"
    (tmp_path / "run.json").write_bytes(document(events))

    code, page, err = run("run.json", *ONE, "-q", "--static", *options)

    assert (code, "event-secret-1" in page, "event-secret-2" in page) == (0, not options, not options)
    assert ("left out as a likely secret: --token, apiKey" if options else "--redact leaves it out") in err


def test_secrets_of_the_metadata_of_several_ranks_are_left_out(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank is read into a store of its own."""
    events = starved()
    for event in events:
        if event.get("cat") == "kernel":
            event["name"] = "k metadata-secret"
    for rank in (0, 1):
        info = {"rank": rank, "world_size": 2, "backend": "nccl"}
        data = document(events, distributedInfo=info, env={"DB_PASSWORD": "metadata-secret"})
        (tmp_path / f"rank{rank}.json").write_bytes(data)
    monkeypatch.setattr(batch, "BATCH_BYTES", 1)
    code, page, err = run("rank0.json", "rank1.json", *ONE, "-q", "--static", "--redact")
    assert (code, "k redacted" in page, "metadata-secret" in page) == (0, True, False), err


def test_no_more_than_seven_characters_of_a_secret_are_left_where_names_are_cut(run, tmp_path: Path) -> None:
    secret = "Zq7Xw9Kp2Lm4Nv6Bt8Rc1Yd3Fh5Gj0"
    events = []
    for at, length in enumerate(range(60, 100, 3)):
        ts = 10_000 * at
        name = "k" * length + secret + "z" * 99
        events += [step(at, ts, 10_000), x(f"nn.Module: {name}_0", ts + 10, 9_000, "python_function")]
        events += [runtime("cudaLaunchKernel", ts + 20, 3, at), kernel(name, ts + 40, 5_000, at)]
    (tmp_path / "run.json").write_bytes(document(events, env={"MY_PASSWORD": secret}))

    code, page, err = run("run.json", *ONE, "-q", "--static", "--redact")

    left = {secret[at : at + 8] for at in range(23)}
    assert (code, "k" * 60 in page, [text for text in left if text in page]) == (0, True, []), err


def test_no_cut_secret_is_left_in_the_sentences_on_a_cpu(run, tmp_path: Path) -> None:
    secret = "Zq7Xw9Kp2Lm4Nv6Bt8Rc"
    events = []
    for at in range(5):
        ts, name = 1000 * at, "aten::" + "k" * 35 + secret
        events += [step(at, ts, 1000), x(name, ts + 5, 200), x("aten::mm", ts + 10, 190)]
        events += [x(f"{name}x", ts + 800, 150), x("aten::mm", ts + 805, 100)]
    (tmp_path / "run.json").write_bytes(document(events, env={"MY_PASSWORD": secret}))

    code, page, err = run("run.json", "-q", "--static", "--redact")

    cut = "k" * 35 + "redacted…"
    assert code == 0
    assert f"between aten::{cut} and aten::{cut}" in page
    assert f"mostly inside aten::{cut}" in page
    assert [at for at in range(13) if secret[at : at + 8] in page] == [], err


def test_parts_are_not_enough_to_redact(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["habana_perf_tool", "analyze", "run.json", *ONE, "-q", "--part", "rank0.part"])
    with pytest.raises(SystemExit):
        main()
    code, page, err = run("rank0.part", *ONE, "--static", "--redact")
    assert (code, page) == (2, "")
    assert "--redact needs the traces" in err
