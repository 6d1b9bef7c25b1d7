"""Reads a saved ``/metrics`` page of vLLM or SGLang, in the text format of Prometheus.

Values of several engines are added up. Only the sum and the count of a histogram are kept: they give the exact mean,
whereas percentiles would be as coarse as the buckets.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

from perftool.model.records import ConfigEntry, LogReading
from perftool.model.serving import MetricsPage
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.text_lines import Source, TextLine, read_lines

# The value of a label is in quotes and may contain any character, including braces. The limit on escapes bounds memory
# use, because the regular expression engine stores a state for each escape.
_VALUE = r'"[^"\\]*(?:\\.[^"\\]*){0,1000}"'
_LABEL = rf"\w{{1,100}}={_VALUE}"
_LABELS = rf"\{{(?:{_LABEL}(?:,{_LABEL})*,?)?\}}"
_SAMPLE = re.compile(
    rf"(?P<name>[\w:]{{1,100}})(?P<labels>{_LABELS})? (?P<value>[-+.\w]{{1,40}})"
    rf"(?: -?\d+(?:\.\d+)?)?(?: # {_LABELS}[-+.\w ]{{0,80}})?\s*$"
)
# A sample whose value is not used. Its labels are not examined, because a page has thousands of such lines.
_OTHER_SAMPLE = re.compile(
    r"[\w:]{0,99}\w(?:\{.*\})? [-+]?(?:\d[-+.\w]{0,39}|(?i:nan|inf))(?: -?\d+(?:\.\d+)?)?(?: # .*)?\s*$"
)
_KEY_AND_VALUE = re.compile(rf"(\w{{1,100}})=({_VALUE})")
_NAME = re.compile(r"(?P<server>vllm|sglang):[\w:]+")
_COMMENT = re.compile(r"#\s*(?P<kind>HELP|TYPE)\s+(?=(?:vllm|sglang):)")
_OF_SERVER = re.compile(r"# (?:HELP|TYPE) (?:vllm|sglang):")
# Counts requests by the reason why they ended. In spite of its name, these reasons are among them.
_FINISHED = "vllm:request_success_total"
_FAILED = re.compile(r'(?:^|,)finished_reason="error"(?:,|$)')
# Our names for totals, and their names in pages, newest first. Histograms append _sum and _count.
_TOTALS = {
    "preemptions": ("vllm:num_preemptions_total",),
    "prompt_tokens": ("vllm:prompt_tokens_total", "sglang:prompt_tokens_total"),
    "output_tokens": ("vllm:generation_tokens_total", "sglang:generation_tokens_total"),
    "prefix_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "drafts": ("vllm:spec_decode_num_drafts_total",),
    "drafted_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
    "requests": (_FINISHED, "sglang:num_requests_total"),
    "iterations": ("vllm:iteration_tokens_total_count",),
}
_TIMES = {
    "ttft_ms": ("vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds"),
    # vLLM's old metric time_per_output_token measured the gaps between tokens.
    "itl_ms": (
        "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds", "sglang:inter_token_latency_seconds",
    ),
    "tpot_ms": ("vllm:request_time_per_output_token_seconds",),
    "latency_ms": ("vllm:e2e_request_latency_seconds", "sglang:e2e_request_latency_seconds"),
    "queue_ms": ("vllm:request_queue_time_seconds", "sglang:queue_time_seconds"),
    "prefill_ms": ("vllm:request_prefill_time_seconds",),
    "decode_ms": ("vllm:request_decode_time_seconds",),
}  # fmt: skip
# Larger than any total that a server reports.
_MOST = 1e15
_STARTED = "vllm:generation_tokens_created"
_SETTINGS = "vllm:cache_config_info"
_KEPT = ("num_gpu_blocks", "block_size", "enable_prefix_caching", "gpu_memory_utilization")
_HISTOGRAMS = [name for names in _TIMES.values() for name in names]
# The buckets are not used, but show which engines the sum and the count must contain.
_BUCKETS = {f"{name}_bucket": name for name in _HISTOGRAMS}
_SUMMED = {
    _STARTED,
    *(name for names in _TOTALS.values() for name in names),
    *(f"{name}_{part}" for name in _HISTOGRAMS for part in ("sum", "count")),
}
_NAMES = {*_SUMMED, *_BUCKETS, _SETTINGS}
# A page of a server has about a hundred names.
_MOST_NAMES = 10_000
_LONGEST_SETTING = 200


def is_page(lines: Iterable[str]) -> bool:
    """Whether the file with these lines is the metrics page of a known server."""
    return any(_OF_SERVER.match(line) for line in lines)


def read(source: Source, rank: int | None = None) -> LogReading:
    """Read the totals and the settings in a page. Raise InputError if the file cannot be opened or read."""
    page = _Page(IssueTally(), rank)
    for line in read_lines(source, page.tally):
        if not line.ended and line.text.strip():
            # Both text formats end every line, so the value may lack its last digits.
            message = "the last line of the metrics page is truncated, so values are missing"
            page.tally.note("cut line", message, line.number)
        else:
            page.feed(line)
    return page.reading()


@dataclass
class _Page:
    """Collects the values of a page from its lines, fed in order.

    ``samples`` are values by name and labels. ``histograms`` are the labels of buckets, without their bounds, and
    ``engines`` are the engines with a value; both are keyed by name. Names that lack a value are in ``unknown``.
    ``servers`` and ``described`` show whether the file consists of several pages.
    """

    tally: IssueTally
    rank: int | None
    samples: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    histograms: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    engines: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    unknown: set[str] = field(default_factory=set)
    settings: tuple[ConfigEntry, ...] = ()
    servers: set[str] = field(default_factory=set)
    described: set[tuple[str, str]] = field(default_factory=set)
    is_several: bool = False

    def feed(self, line: TextLine) -> None:
        text = line.text.lstrip()
        comment = _COMMENT.match(text)
        name = _NAME.match(text, comment.end() if comment else 0)
        if name:
            self.servers.add(name["server"])
        if name and comment:
            self._describe((comment["kind"], name[0]), line.number)
        elif name and name[0] in _NAMES:
            self._sample(name[0], text, line.number)
        elif text and not text.startswith("#") and not _OTHER_SAMPLE.match(text):
            # The file may also contain a result of a benchmark client, for example.
            self.tally.note("other text", "a line is not part of a metrics page and is left out", line.number)

    def reading(self) -> LogReading:
        """Return the totals and the settings of the page."""
        if self.is_several or len(self.servers) > 1:
            self.tally.note("several pages", "the file contains several metrics pages, whose values are unknown")
            self.samples, self.settings = {}, ()
        else:
            self._note_missing()
        # Without the value of one engine, a sum over the engines is unknown.
        sums = {name: sum(values.values()) for name, values in self.samples.items() if name not in self.unknown}
        # Each engine of a server has its own start time.
        starts = frozenset(self.samples[_STARTED].items() if _STARTED in sums else ())
        counters = {
            (name, labels): value
            for name, values in self.samples.items()
            if name in sums and name != _STARTED
            for labels, value in values.items()
        }
        totals = _known(sums)
        finished = self.samples[_FINISHED].items() if _FINISHED in sums else ()
        if failed := [value for labels, value in finished if _FAILED.search(labels)]:
            totals["failed_requests"] = sum(failed)
        if totals.get("accepted_tokens", 0) > totals.get("drafted_tokens", _MOST):
            self.tally.note("bad value", "according to the metrics page, more tokens were accepted than drafted")
            del totals["accepted_tokens"], totals["drafted_tokens"]
        page = MetricsPage(starts, totals, frozenset(chain(*self.samples.values())), counters)
        return LogReading(pages=(page,), config=self.settings, issues=self.tally.issues(), kind="serving")

    def _describe(self, comment: tuple[str, str], line: int) -> None:
        # A page describes each name once.
        self.is_several |= comment in self.described
        if self.tally.has_room(len(self.described), "names", line, most=_MOST_NAMES):
            self.described.add(comment)

    def _sample(self, name: str, text: str, line: int) -> None:
        found = _SAMPLE.match(text)
        value = _number(found["value"]) if found else None
        if found is None or value is None:
            self.tally.note("bad value", "a value of the metrics page is not a number", line)
            self.unknown.add(name)
            return
        given = dict(_KEY_AND_VALUE.findall(found["labels"] or ""))
        if name == _SETTINGS:
            kept = [key for key in _KEPT if key in given and len(given[key]) <= _LONGEST_SETTING]
            self.settings = tuple(ConfigEntry("server", key, given[key][1:-1], self.rank, line) for key in kept)
            return
        if "engine" in given:
            self.engines[name].add(given["engine"])
        if name in _BUCKETS:
            given.pop("le", None)
        labels = ",".join(f"{key}={given[key]}" for key in sorted(given))
        if name in _BUCKETS:
            self.histograms[_BUCKETS[name]].add(labels)
            return
        if labels in self.samples[name]:
            # Two pages in one file, for example.
            self.tally.note("bad value", "the metrics page has a value twice", line)
            self.unknown.add(name)
        self.samples[name][labels] = value

    def _note_missing(self) -> None:
        """Note and leave out names that lack the value of an engine, because the page was cut, for example."""
        for time in _HISTOGRAMS:
            parts = {f"{time}_sum", f"{time}_count"}
            labels = [set(self.samples.get(part, ())) for part in parts]
            if not parts & self.unknown and (labels[0] != labels[1] or self.histograms.get(time, set()) - labels[0]):
                self.tally.note("bad value", "a histogram of the metrics page lacks a sum or a count")
                self.unknown |= parts
        every = set().union(*self.engines.values())
        for name in [name for name, engines in self.engines.items() if engines != every and name not in self.unknown]:
            self.tally.note("bad value", "the metrics page lacks a value of an engine")
            self.unknown.add(name)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < _MOST else None


def _known(sums: dict[str, float]) -> dict[str, float]:
    """Return the totals under our names. A time has two totals: its sum in ms, and its count under ``<name> count``."""
    found = {name: sums[one] for name, spellings in _TOTALS.items() for one in spellings[::-1] if one in sums}
    for name, spellings in _TIMES.items():
        for one in spellings[::-1]:
            if f"{one}_sum" in sums and f"{one}_count" in sums:
                found[name], found[f"{name} count"] = sums[f"{one}_sum"] * 1000, sums[f"{one}_count"]
    return found
