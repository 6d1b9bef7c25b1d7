"""Reads what an LLM server logs about its load: statistics every few seconds (vLLM V0 and V1, SGLang), and individual
iterations (vLLM with --enable-logging-iteration-details)."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from perftool.model.records import LogReading
from perftool.model.serving import LoggedIteration, ServingInterval
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.log_lines import Beginning, LogLine, is_wrapped, own_words
from perftool.readers.text.log_time import DAY_NS, elapsed
from perftool.readers.text.printed_number import printed_number

_VLLM, _SGLANG, _DRAFTS = "Avg prompt throughput: ", "Decode batch", "SpecDecoding metrics: "
_DRAFTS_V0 = "Speculative metrics: "
_ITERATION = "iteration elapsed time: "
# All servers print the rate at which they generate tokens, in various forms.
_RATES = ("gen throughput", "generation throughput")
# Only a server prints these, so a line with one of them is the server's own, whatever its prefix.
_DISTINCT = (_VLLM, _ITERATION, "gen throughput (token/s): ", "Avg generation throughput: ")
CORES = (_VLLM, _SGLANG, _DRAFTS, _DRAFTS_V0, _ITERATION, *_RATES)
# SGLang's scheduler printed "Decode batch. #running-req" at first. Later versions print "Decode batch, #running-req",
# some of them with the number of the call: "Decode batch [7], #running-req".
_SGLANG_LINE = rf"{_SGLANG}(?: \[\d+\])?[.,] #"
# What the line itself says, not a client's text that it quotes.
_LOAD = Beginning(
    rf"(?:Engine \d+: |\d+ Engines Aggregated: )?(?:Avg |{_DRAFTS}|{_DRAFTS_V0}|Iteration\()|{_SGLANG_LINE}"
)
# Enough for two hours of iterations of 7 ms.
_MOST = 1_000_000
# The characters in which a number and its unit must end.
_LONGEST = 40
# Limits memory use: a row of statistics takes 1.5 kB.
_MOST_INTERVALS = 500_000

_WHOLE = r"(\d{1,12})"
# At most nine digits, so that times fit into 64 bits as nanoseconds.
_MS = r"(\d{1,9}(?:\.\d{1,9})?)"
_ENGINE = re.compile(r"(Engine \d{1,6}|\d{1,6} Engines Aggregated): ")


class _Value(NamedTuple):
    """A number in a line of statistics: the label before it, the text after it, and the factor that converts it to the
    unit of its field. A count has no factor. ``always``: whether all versions of the server print it exactly once."""

    label: re.Pattern[str]
    behind: str = ""
    factor: float | None = None
    always: bool = False


_Values = dict[str, _Value]
_VLLM_VALUES: _Values = {
    "prompt_tokens_per_s": _Value(re.compile("Avg prompt throughput: "), " tokens/s", 1, always=True),
    "generation_tokens_per_s": _Value(re.compile("Avg generation throughput: "), " tokens/s", 1, always=True),
    "running": _Value(re.compile("Running: "), " reqs", always=True),
    # V0 uses the word pending for waiting requests.
    "waiting": _Value(re.compile("(?:Waiting|Pending): "), " reqs", always=True),
    "preemptions": _Value(re.compile("Preemptions: ")),
    # V0 prints the usage of the device's and the host's caches, and their hit rates on a separate line.
    "cache_ratio": _Value(re.compile("KV cache usage: "), "%", 0.01),
    "prefix_hit_ratio": _Value(re.compile("(?<!External )[Pp]refix cache hit rate: "), "%", 0.01),
}
_SGLANG_VALUES: _Values = {
    "generation_tokens_per_s": _Value(re.compile(r"gen throughput \(token/s\): "), "", 1, always=True),
    "running": _Value(re.compile("#running-req: "), always=True),
    "waiting": _Value(re.compile("#queue-req: "), always=True),
    "cache_ratio": _Value(re.compile("token usage: "), "", 1),
}
_DRAFT_VALUES: _Values = {
    "accepted": _Value(re.compile("Accepted: "), " tokens", always=True),
    "drafted": _Value(re.compile("Drafted: "), " tokens", always=True),
    "acceptance_length": _Value(re.compile("Mean acceptance length: "), "", 1),
}
# V0 prints totals since its start. Emitted tokens are used, because accepted tokens include those after a rejected
# token.
_TOTALS_V0 = re.compile(
    rf"Number of speculative tokens: {_WHOLE}, Number of accepted tokens: {_WHOLE}, "
    rf"Number of draft tokens: {_WHOLE}, Number of emitted tokens: {_WHOLE}"
)
# Dummy iterations only keep idle data-parallel ranks synchronised.
_DETAILS = re.compile(
    rf"Iteration\({_WHOLE}\): {_WHOLE} context requests, {_WHOLE} context tokens, {_WHOLE} generation requests, "
    rf"{_WHOLE} generation tokens, iteration elapsed time: {_MS} ms(?P<dummy> \(dummy\))?(?=,? |,?$)"
)


class IntervalScanner:
    """Collects statistics from the lines of a log, fed in order."""

    def __init__(self, tally: IssueTally) -> None:
        self._tally = tally
        self._intervals: list[ServingInterval] = []
        self._iterations: list[LoggedIteration] = []
        self._day_ns, self._last_ns = 0, 0
        # The times of the last lines, by process and engine.
        self._times: dict[tuple[str, str], int] = {}
        # The places of the last statistics, and the totals of drafts that V0 prints, by process.
        self._last: dict[str, int] = {}
        self._totals: dict[str, tuple[int, int]] = {}
        self._unknown: int | None = None

    @property
    def has_load(self) -> bool:
        """Whether the log contains statistics so far."""
        return bool(self._intervals or self._iterations)

    @property
    def has_served(self) -> bool:
        """Whether the server had requests so far. Some versions also print statistics while they have none."""
        return bool(self._iterations) or any(
            one.running or one.prompt_tokens_per_s or one.generation_tokens_per_s for one in self._intervals
        )

    def feed(self, line: LogLine) -> None:
        """Keep the statistics or the iteration in ``line``. Counts of draft tokens are added to the previous
        statistics of the process."""
        text = line.text
        if not _LOAD.match(text):
            if self._unknown is None and _is_unknown(line):
                self._unknown = line.number
        elif not line.ended:
            # The server is still writing this line.
            return
        elif _VLLM in text:
            self._add(line, self._values(_VLLM_VALUES, line))
        elif _SGLANG in text:
            self._add(line, self._values(_SGLANG_VALUES, line))
        elif _DRAFTS in text:
            # vLLM prints this line right after the statistics of the same interval.
            self._add_drafts(line, self._values(_DRAFT_VALUES, line))
        elif _DRAFTS_V0 in text:
            self._add_drafts(line, self._drafts_v0(line))
        elif _ITERATION in text:
            self._add_iteration(line)
        elif any(rate in text for rate in _RATES):
            self._note_damage(line)

    def reading(self) -> LogReading:
        """Return all intervals and iterations so far. Statistics in an unknown form are reported, because the known
        statistics may be only some of them."""
        if self._unknown is not None:
            self._tally.note(
                "unknown statistics", "a server's statistics are in a form that is not read", self._unknown
            )
        return LogReading(intervals=tuple(self._intervals), iterations=tuple(self._iterations), kind="runtime_log")

    def _values(self, values: _Values, line: LogLine) -> dict[str, Any]:
        """Return the numbers of ``values`` in ``line``. A number that is missing, repeated or malformed counts as
        damage.
        """
        found: dict[str, Any] = {}
        for name, value in values.items():
            ends = [label.end() for label in islice(value.label.finditer(line.text), 2)]
            number = _number_at(line.text, ends[0], value) if ends else None
            if number is not None:
                found[name] = number if value.factor is None else number * value.factor
            if (value.always and len(ends) != 1) or (ends and number is None):
                self._note_damage(line)
        return found

    def _note_damage(self, line: LogLine) -> None:
        self._tally.note(
            "bad statistics", "a value of a server's statistics is missing, repeated or not a number", line.number
        )

    def _add(self, line: LogLine, numbers: dict[str, Any]) -> None:
        if not numbers:
            return
        if not self._tally.has_room(len(self._intervals), "intervals", line.number, most=_MOST_INTERVALS):
            return
        engine, process, time_ns = _engine(line.text), line.prefix.process, self._time(line.prefix.time_ns)
        last_ns = self._times.get((process, engine))
        since_ns = None if last_ns is None or time_ns is None else elapsed(last_ns, time_ns)
        self._last[process] = len(self._intervals)
        self._intervals.append(
            ServingInterval(
                engine, time_ns, **numbers, since_ns=since_ns, process=process, rank=line.rank, line=line.number
            )
        )
        if time_ns is not None:
            self._times[process, engine] = time_ns

    def _add_drafts(self, line: LogLine, drafts: dict[str, Any]) -> None:
        """Add ``drafts`` to the last statistics of the process. If these have drafts already, or if there are none,
        it is unknown to which statistics the drafts belong."""
        if drafts.get("accepted", 0) > drafts.get("drafted", math.inf):
            self._tally.note("bad statistics", "more tokens were accepted than drafted", line.number)
            return
        at = self._last.get(line.prefix.process)
        if at is not None and self._intervals[at].drafted is None:
            self._intervals[at] = replace(self._intervals[at], **drafts)
        elif drafts and self._tally.has_room(len(self._intervals), "intervals", line.number, most=_MOST_INTERVALS):
            # Without a time, the line does not divide the time between two lines of statistics.
            self._intervals.append(
                ServingInterval("", None, **drafts, process=line.prefix.process, rank=line.rank, line=line.number)
            )

    def _add_iteration(self, line: LogLine) -> None:
        found = _DETAILS.search(line.text)
        if found is None or line.text.count(_ITERATION) > 1:
            self._note_damage(line)
        if found is None or found["dummy"]:
            return
        if not self._tally.has_room(len(self._iterations), "iterations", line.number, most=_MOST):
            return
        number, prompts, prompt_tokens, generating, generated = map(int, found.groups()[:5])
        self._iterations.append(
            LoggedIteration(
                _engine(line.text), number, prompts, prompt_tokens, generating, generated, round(float(found[6]) * 1e6),
                line.rank, line.number,
            )
        )  # fmt: skip

    def _drafts_v0(self, line: LogLine) -> dict[str, Any]:
        """Return the counts of draft tokens since the previous line or, if the server was restarted, since its
        start.
        """
        # Early releases of V1 reset their counts in each interval. They are recognised by an efficiency of nan.
        if "efficiency: nan" in line.text:
            return {}
        totals = _TOTALS_V0.search(line.text)
        if not totals or not int(totals[1]):
            self._note_damage(line)
            return {}
        per_step, _, drafted, emitted = map(int, totals.groups())
        process = line.prefix.process
        before = self._totals.get(process, (0, 0))
        drafted_before, emitted_before = before if drafted >= before[0] else (0, 0)
        steps, kept = (drafted - drafted_before) / per_step, emitted - emitted_before
        if process in self._totals or self._tally.has_room(len(self._totals), "processes", line.number):
            self._totals[process] = drafted, emitted
        if not steps:
            return {}
        counts = {"drafted": round(steps * per_step), "accepted": max(round(kept - steps), 0)}
        return {**counts, "acceptance_length": kept / steps}

    def _time(self, time_ns: int | None) -> int | None:
        """Return ``time_ns``, plus the days since the first line if the lines contain only the time of day."""
        if time_ns is None or time_ns >= DAY_NS:
            return time_ns
        # Lines of several processes may be out of order, but by less than half a day.
        self._day_ns += DAY_NS if time_ns < self._last_ns - DAY_NS // 2 else 0
        self._last_ns = time_ns
        return self._day_ns + time_ns


def _engine(text: str) -> str:
    found = _ENGINE.search(text)
    return found[1] if found else ""


def _is_unknown(line: LogLine) -> bool:
    """Whether ``line``, which does not begin as known statistics do, contains statistics of a server."""
    text = line.text
    found = [known for known in (_RATES if line.prefix.of_server else _DISTINCT) if known in text]
    return bool(found) and (is_wrapped(text) or any(known in own_words(text) for known in found))


def _number_at(text: str, at: int, value: _Value) -> float | None:
    """Return the number at ``at``. A comma or the end of the line follows its unit; V0 prints a full stop there."""
    stated = text[at : at + _LONGEST].partition(", ")[0].rstrip(" ,").removesuffix(".")
    if not stated.endswith(value.behind):
        return None
    return printed_number(stated.removesuffix(value.behind), whole=value.factor is None)
