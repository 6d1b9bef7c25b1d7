"""Every command shown on a page runs on a small recording."""

from __future__ import annotations

import re
from pathlib import Path

from builders.program import Run
from builders.shown_commands import ROOT, shown_commands
from events import Event, document, kernel, loader, memcpy, runtime, step, x

# Commands that do not run here, with the reason. Other tests run them.
NOT_HERE = {
    "benchmark": "measures for minutes, and what it shows depends on the machine",
    "mcp": "serves until its client leaves",
    "record": "runs the training script of the reader",
}
RECORDINGS = ("run.pt.trace.json", "decode.pt.trace.json", "capture.pt.trace.json", "traces/rank0.json")
# Samples, whose analyses take longer, and other names that the pages use. Each maps to a single recording, so that
# cached analyses can be used.
SAMPLES = {
    "sample_traces/gaudi2_unoptimised": "traces/", "sample_traces/gaudi2_optimised": "traces/",
    "sample_traces/gaudi2_unoptimised/rank0.pt.trace.json.gz": "run.pt.trace.json",
    "sample_traces/cpu/loader_starved.json.gz": "run.pt.trace.json",
}  # fmt: skip
ALIASES = {
    **SAMPLES,
    "run.json": "run.pt.trace.json",
    **dict.fromkeys(("my_tensorboard_logs", "main/", "branch/", "profile_dir", "runs/first"), "traces/"),
    "/var/lib/node_exporter/textfile/perf.prom": "perf.prom",
}


def recording() -> list[Event]:
    """Return six steps of 1 ms on a GPU, with a wait for a batch, a kernel and 20 reads of a scalar."""
    events: list[Event] = []
    for number in range(6):
        at = number * 1000
        events += [
            step(number, at, 1000), loader(at + 10, 400), x("aten::mm", at + 420, 20),
            runtime("cudaLaunchKernel", at + 422, 5, number), kernel("gemm", at + 430, 50, number),
        ]  # fmt: skip
        for read in range(20):
            begin, flow = at + 500 + read * 20, 1000 + number * 100 + read
            events += [
                x("aten::item", begin, 18), x("aten::_local_scalar_dense", begin + 1, 16),
                runtime("cudaMemcpyAsync", begin + 2, 3, flow), memcpy("Memcpy DtoH (Device)", begin + 4, 1, flow),
                runtime("cudaStreamSynchronize", begin + 6, 9),
            ]  # fmt: skip
    return events


def prepare(folder: Path) -> None:
    """Create the files in ``folder`` that the commands read."""
    made = document(recording())
    for name in RECORDINGS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(made)
    (folder / "sample_traces").symlink_to(ROOT / "sample_traces")
    [rule, _] = re.findall(
        r"```toml\n(.*?)```", (ROOT / "docs" / "own-rules.md").read_text(encoding="utf-8"), re.DOTALL
    )
    (folder / "questions.sql").write_text("SELECT 1; SELECT 2;")
    (folder / "mypack").mkdir()
    (folder / "mypack" / "ACM901.toml").write_text(rule, encoding="utf-8")


def chosen() -> list[tuple[str, ...]]:
    """Return the shown commands, sorted so that a baseline is written before it is used.

    If several commands differ only in the names of recordings, only one of them is kept.
    """
    shown = sorted({tuple(words) for _, words in shown_commands()}, key=lambda words: ("--baseline" in words, words))
    kinds = {tuple(word for word in words if not word.endswith(".json") and "/" not in word): words for words in shown}
    return sorted(kinds.values(), key=lambda words: "--baseline" in words)


def test_every_command_of_the_pages_runs(run: Run, tmp_path: Path) -> None:
    prepare(tmp_path)
    for words in chosen():
        prompts = words[0] == "query" and len(words) == 2 and words[1] != "--tables"
        if words[0] not in NOT_HERE and not prompts:
            code = run(*(ALIASES.get(word, word) for word in words))
            # A gate exits with 1 if it has findings.
            assert code == 0 or (code == 1 and words[0] in ("lint", "diff")), (words, run.err)


def test_the_samples_of_the_pages_exist() -> None:
    shown = {word for _, words in shown_commands() for word in words if word.startswith("sample_traces/")}
    assert [name for name in sorted(shown | set(SAMPLES)) if not (ROOT / name).exists()] == []


def test_only_commands_on_pages_are_listed_as_exceptions() -> None:
    assert {words[0] for _, words in shown_commands()} >= set(NOT_HERE)
