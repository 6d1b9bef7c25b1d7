"""Reads results of ``vllm bench serve`` and ``sglang.bench_serving``, which share their labels and keys."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable
from typing import Any

from perftool.model.records import LogReading
from perftool.model.serving import ClientResult, ServingNumber, Statistic
from perftool.readers.text.bounded_json import require_few_containers
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.json_values import number
from perftool.readers.text.log_lines import LogLine, own_words
from perftool.readers.text.printed_number import printed_number
from perftool.readers.text.text_lines import MAX_JSON_LINE, Source, TextLine, joined, read_lines
from perftool.readers.text.unique_keys import decoder_of_unique

TITLE = "= Serving Benchmark Result ="
# A result has about fifty lines.
_MOST_LINES, _MOST_RESULTS = 200, 1000
# A file of 1,000 results, each with the times of 1,000 requests, takes about 50 MB.
_MOST_TEXT = 256 << 20
# Larger than any number that a client reports.
_MOST = 1e15

COMPLETED, _FAILED, _SENT = "completed", "failed", "num_prompts"

_Name = tuple[str, Statistic]
_LABELS: dict[str, _Name] = {
    "Successful requests": ("requests", "total"),
    "Failed requests": ("failed_requests", "total"),
    "Benchmark duration (s)": ("duration_s", "value"),
    "Total input tokens": ("prompt_tokens", "total"),
    "Total generated tokens": ("output_tokens", "total"),
    "Request throughput (req/s)": ("requests_per_s", "value"),
    "Output token throughput (tok/s)": ("output_tokens_per_s", "value"),
}
_KEYS: dict[str, _Name] = {
    COMPLETED: ("requests", "total"),
    _FAILED: ("failed_requests", "total"),
    "duration": ("duration_s", "value"),
    "total_input_tokens": ("prompt_tokens", "total"),
    "total_output_tokens": ("output_tokens", "total"),
    "request_throughput": ("requests_per_s", "value"),
    "output_throughput": ("output_tokens_per_s", "value"),
}
_TIMES = {"TTFT": "ttft_ms", "TPOT": "tpot_ms", "ITL": "itl_ms", "E2EL": "latency_ms", "E2E Latency": "latency_ms"}
_STATISTICS: dict[str, Statistic] = {"Mean": "mean", "Median": "median", "P99": "p99"}
for _shown, _statistic in _STATISTICS.items():
    for _time, _name in _TIMES.items():
        _LABELS[f"{_shown} {_time} (ms)"] = (_name, _statistic)
        _KEYS[f"{_shown} {_time} ms".lower().replace(" ", "_")] = (_name, _statistic)
# Two clients that print at once may put two ends on one line.
_END, _TWO_ENDS = re.compile(r"={40,}"), 80


def _measured(names: dict[str, _Name]) -> set[str]:
    return {key for key, (name, _) in names.items() if name.endswith(("_ms", "_per_s"))}


# The options of a client decide which times a result contains.
_MEASURED = _measured(_KEYS)
# Other programs print numbers of requests and tokens under the same labels, but no others measure a server.
_MEASURED_LABELS = _measured(_LABELS)
# The keys as JSON writes them.
_QUOTED = tuple(f'"{key}"' for key in sorted(_MEASURED))
_PRETTY = re.compile(rf"[^'\"`]*(?:{'|'.join(_QUOTED)})\s*:")
# The quotation marks of a result in a record of Docker have backslashes before them.
CORES = (TITLE, *sorted(_MEASURED_LABELS), *sorted(_MEASURED))


def is_result(keys: Iterable[str]) -> bool:
    """Whether a JSON object with these keys is the result of a benchmark client."""
    found = set(keys)
    return COMPLETED in found and not found.isdisjoint(_MEASURED)


def may_be_json(text: str) -> bool:
    """Whether the line ``text`` of a log may end with a JSON result, or be a line of one. A client's text follows other
    words, and in JSON, its quotation marks are escaped."""
    if not any(key in text for key in _QUOTED):
        return False
    before = text.partition('"')[0]
    return own_words(before) == before and before.rstrip()[-1:] in ("", "{")


class ResultScanner:
    """Collects results from the lines of a log, fed in order: printed ones, and JSON results in one line."""

    def __init__(self, tally: IssueTally) -> None:
        self._tally = tally
        self._results = _LastResults(tally)
        self._decoder = decoder_of_unique(tally)
        self._numbers: dict[_Name, float] = {}
        self._left = 0
        self._is_open = False

    @property
    def in_result(self) -> bool:
        """Whether the next line may belong to a result."""
        return self._left > 0

    def feed(self, line: LogLine) -> None:
        """Keep the number in ``line`` if it is between the title and the end of a printed result."""
        if TITLE in line.text and (titles := own_words(line.text).count(TITLE)):
            self._close()
            self._left, self._is_open = _MOST_LINES, True
            if titles > 1:
                self._note_mixed(line)
        elif self._left:
            self._left -= 1
            if any(key in line.text for key in _QUOTED):
                self._tally.note("mixed results", "a printed result contains a JSON result", line.number)
            else:
                self._read(line)
        elif _label(line.text) in _MEASURED_LABELS:
            self._tally.note(
                "stray value", "a value stands outside of a printed result, whose title is lost", line.number
            )
        elif any(key in line.text for key in _QUOTED):
            self._read_json(line)

    def reading(self) -> LogReading:
        """Return all results so far. A truncated result contains the numbers that were printed."""
        self._close()
        return LogReading(results=self._results.kept, kind="runtime_log")

    def _read(self, line: LogLine) -> None:
        text = line.text.strip()
        label = _label(text)
        if _END.fullmatch(text):
            if len(text) >= _TWO_ENDS:
                self._note_mixed(line)
            self._is_open = False
            self._close()
        elif label in _LABELS:
            value = printed_number(text[len(label) + 1 :].strip())
            if _LABELS[label] in self._numbers:
                self._note_mixed(line)
            # Without a line feed, the number may lack its last digits.
            if line.ended and value is not None:
                self._numbers[_LABELS[label]] = float(value)
            else:
                self._tally.note("bad value", "a value of a printed result is not a complete number", line.number)

    def _read_json(self, line: LogLine) -> None:
        text = line.text
        found = _decoded(text, self._decoder)
        if is_result(found):
            self._results.add(_numbers(found, self._tally))
        elif _PRETTY.match(text) or f'"{COMPLETED}"' in text:
            self._tally.note(
                "stray value", "a JSON result in a log is read only if it is a line of its own", line.number
            )

    def _note_mixed(self, line: LogLine) -> None:
        self._tally.note("mixed results", "a printed result has a line twice, so two are mixed", line.number)

    def _close(self) -> None:
        if self._is_open:
            self._tally.note(
                "cut result", "a printed result has no end, so values may be missing or belong to another result"
            )
        if self._numbers:
            self._results.add(self._numbers, exact=False)
        self._numbers, self._left, self._is_open = {}, 0, False


def _label(text: str) -> str:
    return text.partition(":")[0].lstrip()


def read(source: Source, _rank: int | None = None) -> LogReading:
    """Read one or more JSON results. Raise InputError if the file cannot be opened or read."""
    tally = IssueTally()
    text = _whole(read_lines(source, tally, MAX_JSON_LINE), tally)
    try:
        require_few_containers(text)
    except ValueError as error:
        tally.note("bad JSON", f"the file was not read: {error}")
        text = ""
    results = _LastResults(tally)
    decoder, at = decoder_of_unique(tally), 0
    while (begin := text.find("{", at)) >= 0:
        _note_other_text(tally, text[at:begin])
        try:
            found, at = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError):
            tally.note("bad JSON", "a result is not complete JSON and is left out")
            at = len(text)
            break
        if not is_result(found):
            tally.note("bad JSON", "an object is not a result of a benchmark client and is left out")
        else:
            results.add(_numbers(found, tally))
    _note_other_text(tally, text[at:])
    return LogReading(results=results.kept, issues=tally.issues(), kind="serving")


def _decoded(text: str, decoder: json.JSONDecoder) -> dict[str, Any]:
    """Return the JSON object ``text``, or an empty one if it is not valid."""
    try:
        require_few_containers(text)
        found = decoder.decode(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _numbers(found: dict[str, Any], tally: IssueTally) -> dict[_Name, float]:
    """Return the numbers in the result ``found``."""
    # Clients write null for a number that they did not measure.
    given = {key: value for key, value in found.items() if key in _KEYS and value is not None}
    numbers = {key: number(value, _MOST) for key, value in given.items()}
    for key in (key for key, value in numbers.items() if value is None):
        tally.note("bad value", f"{key} is not a usable number")
    if _FAILED not in given:
        numbers[_FAILED] = _unanswered(found, numbers.get(COMPLETED))
    return {_KEYS[key]: float(value) for key, value in numbers.items() if value is not None}


def _unanswered(found: dict[str, Any], completed: float | None) -> float | None:
    """Return how many requests failed, for clients that state only how many they sent; None if that is unknown."""
    sent = number(found.get(_SENT), _MOST)
    return sent - completed if sent is not None and completed is not None and sent >= completed else None


def _whole(lines: Iterable[TextLine], tally: IssueTally) -> str:
    texts, size = [], 0
    for line in joined(lines):
        size += len(line.text) + 1
        if size > _MOST_TEXT:
            tally.note("too long", f"only the first {_MOST_TEXT >> 20} MiB are read")
            break
        texts.append(line.text)
    return "\n".join(texts)


def _note_other_text(tally: IssueTally, text: str) -> None:
    """Note ``text`` between or after results if it is more than what separates them."""
    if text.strip(" \t\r\n,[]\ufeff"):
        tally.note("bad JSON", "text that is not a result of a benchmark client is left out")


class _LastResults:
    """The last results of a file. Clients append to a file, so these are the newest."""

    def __init__(self, tally: IssueTally) -> None:
        self._last = deque[ClientResult](maxlen=_MOST_RESULTS)
        self._tally = tally

    @property
    def kept(self) -> tuple[ClientResult, ...]:
        return tuple(self._last)

    def add(self, found: dict[_Name, float], *, exact: bool = True) -> None:
        """Keep the result with the numbers ``found``. If there are too many, count the first one as left out."""
        if len(self._last) == _MOST_RESULTS:
            self._tally.note("too many results", f"only the last {_MOST_RESULTS:,} results are kept")
        numbers = (ServingNumber(*name, value) for name, value in found.items() if value or not _is_time(name))
        self._last.append(ClientResult(tuple(numbers), exact))


def _is_time(name: _Name) -> bool:
    # Clients write 0 for a time that they have not measured, because all requests failed or nothing was streamed.
    return name[0].endswith("_ms")
