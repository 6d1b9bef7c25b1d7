"""Reads what an LLM server logs about its load: statistics every few seconds (vLLM V0 and V1, SGLang), and individual
iterations (vLLM with --enable-logging-iteration-details)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from perftool.model.records import LogReading
from perftool.model.serving import LoggedIteration, ServingInterval
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.log_lines import LogLine, beginning, own_words
from perftool.readers.text.log_time import DAY_NS

_VLLM, _SGLANG, _DRAFTS = "Avg prompt throughput: ", "Decode batch", "SpecDecoding metrics: "
_DRAFTS_V0 = "Speculative metrics: "
_ITERATION = "iteration elapsed time: "
# All servers print the rate at which they generate tokens, in various forms.
_RATES = ("gen throughput", "generation throughput")
CORES = (_VLLM, _SGLANG, _DRAFTS, _DRAFTS_V0, _ITERATION, *_RATES)
# SGLang's scheduler printed "Decode batch. #running-req" at first. Later versions print "Decode batch, #running-req",
# some of them with the number of the call: "Decode batch [7], #running-req".
_SGLANG_LINE = rf"{_SGLANG}(?: \[\d+\])?[.,] #"
# What the line itself says, not a text of a client that it quotes.
_LOAD = beginning(
    rf"(?:Engine \d+: |\d+ Engines Aggregated: )?(?:Avg |{_DRAFTS}|{_DRAFTS_V0}|Iteration\()|{_SGLANG_LINE}"
)
# Enough for two hours of iterations of 7 ms.
_MOST = 1_000_000
# Limits memory use: a row of statistics takes 1.5 kB.
_MOST_INTERVALS = 500_000

_REAL, _WHOLE = r"(\d{1,15}(?:\.\d{1,9})?)", r"(\d{1,12})"
# At most nine digits, so that times fit into 64 bits as nanoseconds.
_MS = r"(\d{1,9}(?:\.\d{1,9})?)"
_ENGINE = re.compile(r"(Engine \d{1,6}|\d{1,6} Engines Aggregated): ")
_Fields = dict[str, tuple[re.Pattern[str], float]]
# The pattern of each number, and the factor that converts it to the unit of the field.
_VLLM_RATES: _Fields = {
    "prompt_tokens_per_s": (re.compile(rf"Avg prompt throughput: {_REAL}"), 1),
    "generation_tokens_per_s": (re.compile(rf"Avg generation throughput: {_REAL}"), 1),
    "cache_ratio": (re.compile(rf"KV cache usage: {_REAL}%"), 0.01),
    # V0 prints the hit rates of the device's and the host's caches on a separate line.
    "prefix_hit_ratio": (re.compile(rf"(?<!External )[Pp]refix cache hit rate: {_REAL}%"), 0.01),
}
_VLLM_COUNTS = {
    "running": re.compile(rf"Running: {_WHOLE} reqs"),
    # V0 calls waiting requests pending.
    "waiting": re.compile(rf"(?:Waiting|Pending): {_WHOLE} reqs"),
    "preemptions": re.compile(rf"Preemptions: {_WHOLE}"),
}
_SGLANG_RATES: _Fields = {
    "generation_tokens_per_s": (re.compile(rf"gen throughput \(token/s\): {_REAL}"), 1),
    "cache_ratio": (re.compile(rf"token usage: {_REAL}"), 1),
}
_SGLANG_COUNTS = {
    "running": re.compile(rf"#running-req: {_WHOLE}"),
    "waiting": re.compile(rf"#queue-req: {_WHOLE}"),
}
_DRAFT_COUNTS = {
    "accepted": re.compile(rf"Accepted: {_WHOLE} tokens"),
    "drafted": re.compile(rf"Drafted: {_WHOLE} tokens"),
}
# V0 prints totals since its start. Emitted tokens are used, because accepted tokens include those after a rejected
# token.
_TOTALS_V0 = re.compile(
    rf"Number of speculative tokens: {_WHOLE}, Number of accepted tokens: {_WHOLE}, "
    rf"Number of draft tokens: {_WHOLE}, Number of emitted tokens: {_WHOLE}"
)
# Skips dummy iterations, which only keep idle data-parallel ranks synchronised.
_DETAILS = re.compile(
    rf"Iteration\({_WHOLE}\): {_WHOLE} context requests, {_WHOLE} context tokens, {_WHOLE} generation requests, "
    rf"{_WHOLE} generation tokens, iteration elapsed time: {_MS} ms(?! \(dummy\))"
)
_LENGTH: _Fields = {"acceptance_length": (re.compile(rf"Mean acceptance length: {_REAL}"), 1)}


class IntervalScanner:
    """Collects statistics from the lines of a log, fed in order."""

    def __init__(self, tally: IssueTally) -> None:
        self._tally = tally
        self._intervals: list[ServingInterval] = []
        self._iterations: list[LoggedIteration] = []
        self._day_ns, self._last_ns = 0, 0
        self._drafted, self._emitted = 0, 0
        self._unknown: int | None = None

    @property
    def has_load(self) -> bool:
        """Whether the log contains statistics so far."""
        return bool(self._intervals or self._iterations)

    def feed(self, line: LogLine) -> None:
        """Keep the statistics or the iteration in ``line``. Counts of draft tokens are added to the previous
        statistics."""
        text = line.text
        if not _LOAD.match(text):
            if self._unknown is None and line.prefix.of_server and any(rate in own_words(text) for rate in _RATES):
                self._unknown = line.number
            return
        if _VLLM in text:
            self._add(line, {**_rates(_VLLM_RATES, text), **_counts(_VLLM_COUNTS, text)})
        elif _SGLANG in text:
            self._add(line, {**_rates(_SGLANG_RATES, text), **_counts(_SGLANG_COUNTS, text)})
        elif _DRAFTS in text and self._intervals:
            # vLLM prints this line right after the statistics of the same interval.
            drafts: dict[str, Any] = {**_counts(_DRAFT_COUNTS, text), **_rates(_LENGTH, text)}
            self._intervals[-1] = replace(self._intervals[-1], **drafts)
        elif _DRAFTS_V0 in text and self._intervals:
            self._intervals[-1] = replace(self._intervals[-1], **self._drafts_v0(text))
        elif _ITERATION in text and (found := _DETAILS.search(text)):
            self._add_iteration(line, found)

    def reading(self) -> LogReading:
        """All intervals and iterations so far. Statistics in an unknown form are reported if there are no others."""
        if self._unknown is not None and not self.has_load:
            self._tally.note(
                "unknown statistics", "a server's statistics are in a form that is not read", self._unknown
            )
        return LogReading(intervals=tuple(self._intervals), iterations=tuple(self._iterations), kind="runtime_log")

    def _add(self, line: LogLine, numbers: dict[str, Any]) -> None:
        if not numbers:
            return
        if not self._tally.has_room(len(self._intervals), "intervals", line.number, most=_MOST_INTERVALS):
            return
        time_ns = self._time(line.prefix.time_ns)
        self._intervals.append(
            ServingInterval(_engine(line.text), time_ns, **numbers, rank=line.rank, line=line.number)
        )

    def _add_iteration(self, line: LogLine, found: re.Match[str]) -> None:
        if not self._tally.has_room(len(self._iterations), "iterations", line.number, most=_MOST):
            return
        number, prompts, prompt_tokens, generating, generated = map(int, found.groups()[:-1])
        self._iterations.append(
            LoggedIteration(
                _engine(line.text), number, prompts, prompt_tokens, generating, generated, round(float(found[6]) * 1e6),
                line.rank, line.number,
            )
        )  # fmt: skip

    def _drafts_v0(self, text: str) -> dict[str, Any]:
        """The counts of draft tokens since the previous line or, if the server was restarted, since its start."""
        # Early releases of V1 reset their counts in each interval. They are recognised by an efficiency of nan.
        totals = None if "efficiency: nan" in text else _TOTALS_V0.search(text)
        if not totals or not int(totals[1]):
            return {}
        per_step, _, drafted, emitted = map(int, totals.groups())
        if drafted < self._drafted:
            self._drafted, self._emitted = 0, 0
        steps, kept = (drafted - self._drafted) / per_step, emitted - self._emitted
        self._drafted, self._emitted = drafted, emitted
        if not steps:
            return {}
        counts = {"drafted": round(steps * per_step), "accepted": max(round(kept - steps), 0)}
        return {**counts, "acceptance_length": kept / steps}

    def _time(self, time_ns: int | None) -> int | None:
        """``time_ns``, plus the days since the first line if the lines contain only the time of day."""
        if time_ns is None or time_ns >= DAY_NS:
            return time_ns
        # Lines of several processes may be out of order, but by less than half a day.
        self._day_ns += DAY_NS if time_ns < self._last_ns - DAY_NS // 2 else 0
        self._last_ns = time_ns
        return self._day_ns + time_ns


def _engine(text: str) -> str:
    found = _ENGINE.search(text)
    return found[1] if found else ""


def _rates(fields: _Fields, text: str) -> dict[str, float]:
    found = ((name, pattern.search(text), unit) for name, (pattern, unit) in fields.items())
    return {name: float(match[1]) * unit for name, match, unit in found if match}


def _counts(fields: dict[str, re.Pattern[str]], text: str) -> dict[str, int]:
    found = ((name, pattern.search(text)) for name, pattern in fields.items())
    return {name: int(match[1]) for name, match in found if match}
