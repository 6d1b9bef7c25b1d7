"""Follows the advice of findings on a real vLLM server: ``serving_changes.py FOLDER [--rule SRV203 ...]``.

Run it like ``serving.py``, whose cases it uses. For each rule, a server runs with the settings that cause the finding
and then with the advised settings, under the same load, twice each. For each rule it prints a row of docs/serving.md:
what the finding predicts, and what the client, the server's counters or a recording measure before and after the
change.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from serving import CASES, URL, Case, await_requests, make_model, send_request, serve, under_load

_RUNS = 2
_SHOWN = {
    "queue_time_ms": "wait before a request starts", "ttft_ms": "time to first token", "tpot_ms": "per output token",
    "itl_p99_ms": "P99 between tokens", "output_tokens_per_s": "tokens/s", "preemptions": "preemptions",
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """A change advised by a finding: it turns the case ``before`` into ``after``.

    ``promise`` is what the finding predicts, with the names of evidence values in braces. ``shown`` are numbers from
    the summary. ``query`` is for findings that need a trace: SQL to run on the recording, and the name of its result.
    """

    before: str
    after: str
    what: str
    promise: str
    shown: tuple[str, ...]
    query: tuple[str, str] | None = None


CHANGES = {
    "SRV203": Change(
        "small_batch", "larger_batch", "`--max-num-seqs` from 2 to 16",
        "the wait of {queue_ns} before a request starts disappears",
        ("queue_time_ms", "ttft_ms", "tpot_ms", "output_tokens_per_s"),
    ),
    "SRV202": Change(
        "small_cache", "larger_cache", "`--num-gpu-blocks-override` from 96 to 1024",
        "with {wanted} times the cache, the {preemptions} preemptions and the wait of {queue_ns} disappear",
        ("preemptions", "queue_time_ms", "ttft_ms", "output_tokens_per_s"),
    ),
    "SRV210": Change(
        "small_budget", "larger_budget", "`--max-num-batched-tokens` from 48 to 512, prompts of 512 tokens",
        "{full_ones} of {prompts} iterations with prompts are at the limit; raising it shortens the wait of {queue_ns}",
        ("queue_time_ms", "ttft_ms", "output_tokens_per_s"),
    ),
    "SRV204": Change(
        "instructions_last", "instructions_first", "1,500 shared tokens from the end of all prompts to their start",
        "{hits} of {tokens} prompt tokens hit the prefix cache; shared text at the start is computed once",
        ("ttft_ms", "output_tokens_per_s"),
    ),
    "SRV205": Change(
        "speculative", "larger_batch", "no `--speculative-config`",
        "{accepted} of {drafted} drafts are accepted, so dropping drafts adds hardly any iterations",
        ("tpot_ms", "output_tokens_per_s"),
    ),
    "SRV104": Change(
        "long_prompts", "long_prompts_chunked", "`--max-num-batched-tokens` from 4096 to 512",
        "the longest pause between two tokens falls from {longest_ns} to {chunked_ns}", (),
        ("SELECT max(gap_ns) AS ns FROM token_gaps", "longest pause in a recording"),
    ),
    "SRV101": Change(
        "first_logprobs", "second_logprobs", "log probabilities requested once before the load",
        "the pause of {longest_ns} for the compiler disappears", (),
        ("SELECT max(time_ns) AS ns FROM serving_iterations", "longest iteration in a recording"),
    ),
    "SRV103": Change(
        "decode", "streamed", "`--stream-interval 8`",
        "of {decode_ns} for a decode, up to {outside_ns} can be saved", ("tpot_ms", "output_tokens_per_s"),
        ("SELECT avg(time_ns) AS ns FROM serving_iterations WHERE phase = 'decode'", "mean decode in a recording"),
    ),
}  # fmt: skip


def main() -> int:
    """Follow the advice of the chosen rules, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rule", nargs="*", default=[*CHANGES], choices=[*CHANGES])
    parser.add_argument("--tool", default="habana_perf_tool", help="path of habana_perf_tool in another environment")
    args = parser.parse_args()
    # Without this handler, the servers would outlive this program when SIGTERM stops it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    model = make_model(args.folder / "model")
    for rule in args.rule:
        change = CHANGES[rule]
        sides = [_runs(args.tool, change, name, model, args.folder / rule) for name in (change.before, change.after)]
        promised = _predicted(change, rule, _reports(args.tool, sides[0][0]))
        print(f"| {change.what} | {promised} | {_measured(args.tool, change, rule, sides)} |", flush=True)
    return 0


def _runs(tool: str, change: Change, name: str, model: Path, folder: Path) -> list[Path]:
    """Return the folders of two runs of the case ``name``."""
    case = replace(CASES[name], stacks=False) if change.query else replace(CASES[name], profile_s=0)
    # A server compiles a function only once, so each run that measures the compilation needs a new server.
    servers = _RUNS if case.request else 1
    return [
        run
        for number in range(servers)
        for run in _served(tool, change, case, model, folder / f"{name}_{number}", _RUNS // servers)
    ]


def _served(tool: str, change: Change, case: Case, model: Path, place: Path, runs: int) -> list[Path]:
    """Return the folders of ``runs`` runs on one server; complete runs of an earlier call are reused."""
    if not place.exists():
        begun = place.with_suffix(".begun")
        shutil.rmtree(begun, ignore_errors=True)
        (begun / "traces").mkdir(parents=True)
        with serve(case, model, begun):
            if case.warm:
                send_request(case, model)
            for number in range(runs):
                _one_run(tool, change, case, model, begun / f"run{number}")
        begun.rename(place)
    return [place / f"run{number}" for number in range(runs)]


def _one_run(tool: str, change: Change, case: Case, model: Path, run: Path) -> None:
    """Run the load once for the clients' numbers, if ``change`` shows any, and once recorded, if it has a query."""
    run.mkdir()
    log = run.parent / "server.log"
    begin = log.stat().st_size
    if change.shown:
        with under_load(case, model, run):
            pass
    written = log.read_bytes()
    # The server logs its settings before it is ready.
    head = written[: written.index(b"Application startup complete")]
    (run / "server.log").write_bytes(head + written[begin:])
    if change.query:
        (run / "load").mkdir()
        with under_load(case, model, run / "load"):
            await_requests()
            command = [tool, "record", "--server", URL, "--seconds", str(case.profile_s), "--no-report"]
            with subprocess.Popen([*command, "-o", str(run / "recording")]):
                if case.request and not case.warm:
                    time.sleep(1)
                    send_request(case, model)


def _predicted(change: Change, rule: str, reports: Sequence[Mapping[str, Any]]) -> str:
    """Return the prediction in the report on the first run before the change."""
    findings = [one for report in reports for one in report["findings"] if one["code"] == rule]
    if not findings:
        return f"[{rule}](rules/{rule}.md) does not fire"
    promised = {name: _in_words(name, value) for name, value in findings[0]["evidence"].items()}
    return f"[{rule}](rules/{rule}.md): {change.promise.format(**promised)}"


def _measured(tool: str, change: Change, rule: str, sides: Sequence[Sequence[Path]]) -> str:
    parts = []
    for name in change.shown:
        values = [[_report(tool, run)["summary"][name]["value"] for run in side] for side in sides]
        parts.append(_pair(_SHOWN[name], [[_in_words(name, value) for value in side] for side in values]))
    if change.query:
        sql, what = change.query
        values = [[_answer(tool, _recordings(run)[0], sql) for run in side] for side in sides]
        parts.append(_pair(what, [[_in_words("_ns", value) for value in side] for side in values]))
    last = [one["code"] for run in sides[1] for report in _reports(tool, run) for one in report["findings"]]
    return "; ".join([*parts, f"the finding is {'still there' if rule in last else 'gone'}"])


def _pair(what: str, sides: Sequence[Sequence[str]]) -> str:
    before, after = (" and ".join(side) for side in sides)
    return f"{what}: {before} → {after}"


def _reports(tool: str, run: Path) -> list[dict[str, Any]]:
    return [_report(tool, folder) for folder in (*_recordings(run), run) if (folder / "metrics_after.txt").exists()]


def _recordings(run: Path) -> list[Path]:
    """Return the folder of the run's recording. ``record`` chooses its name. The result is empty if there is no
    recording."""
    return sorted((run / "recording").glob("*"))


def _report(tool: str, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_ask_tool(tool, "analyze", str(folder), "--output-format", "json"))
    return found


def _answer(tool: str, folder: Path, sql: str) -> float:
    return float(json.loads(_ask_tool(tool, "query", str(folder), sql, "--output-format", "json"))[0]["ns"])


def _ask_tool(tool: str, *words: str) -> str:
    return subprocess.run([tool, *words, "--quiet"], check=True, stdout=subprocess.PIPE, text=True).stdout


def _in_words(name: str, value: Any) -> str:
    """Format ``value`` in the unit at the end of ``name``."""
    if value is None:
        return "unknown"
    if name.endswith(("_ns", "_ms")):
        us = value / 1e3 if name.endswith("_ns") else value * 1e3
        return f"{us / 1e6:.3g} s" if us >= 1e6 else f"{us / 1e3:.3g} ms" if us >= 1e3 else f"{us:.3g} us"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
