"""Reads a saved ``/metrics`` page of vLLM or SGLang, in the text format of Prometheus.

Values of several engines are added up. Only the sum and the count of a histogram are kept: they give the exact mean,
whereas percentiles would be as coarse as the buckets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain

from perftool.model.records import ConfigEntry, LogReading
from perftool.model.serving import MetricsPage
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.text_lines import Source, Wanted, read_lines, shortest

_SAMPLE = re.compile(
    r"(?P<name>(?:vllm|sglang):\w{1,100})(?:\{(?P<labels>.*?)\})? (?P<value>[-+.\w]{1,40})"
    r"(?: -?\d+(?:\.\d+)?)?(?: # \{.*)?\s*$"
)
_NAME = re.compile(r"[\w:]+")
_OF_SERVER = re.compile(r"# (?:HELP|TYPE) (?:vllm|sglang):")
# Our names for totals, and the names in pages, newest first. Histograms append _sum and _count.
_TOTALS = {
    "preemptions": ("vllm:num_preemptions_total",),
    "prompt_tokens": ("vllm:prompt_tokens_total", "sglang:prompt_tokens_total"),
    "output_tokens": ("vllm:generation_tokens_total", "sglang:generation_tokens_total"),
    "prefix_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "drafts": ("vllm:spec_decode_num_drafts_total",),
    "drafted_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
    "requests": ("vllm:request_success_total", "sglang:num_requests_total"),
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
_SUMMED = {
    _STARTED,
    *(name for names in _TOTALS.values() for name in names),
    *(f"{name}_{part}" for name in _HISTOGRAMS for part in ("sum", "count")),
}
_NAMES = {*_SUMMED, _SETTINGS}
_READ = shortest(_NAMES)
# Without the \b, a match would be tried at each letter of a long word.
_LABEL = re.compile(r'\b(\w{1,60})="([^"\\]{0,200})"')


def is_page(lines: Iterable[str]) -> bool:
    """Whether a text is the metrics page of a known server."""
    return any(_OF_SERVER.match(line) for line in lines)


def read(source: Source, rank: int | None = None) -> LogReading:
    """Read the totals and the settings in a page. Raise InputError if the file cannot be opened or read."""
    tally = IssueTally()
    # The values by name and labels.
    samples: dict[str, dict[str, float]] = {}
    unknown = set()
    settings: tuple[ConfigEntry, ...] = ()
    for line in read_lines(source, tally, wanted=Wanted(_READ)):
        if not line.ended and line.text.strip():
            # Both text formats end every line, so the value may lack its last digits.
            tally.note("cut line", "the last line of the metrics page is truncated, so values are missing", line.number)
            continue
        text = line.text.lstrip()
        name = _NAME.match(text)
        if name is None or name[0] not in _NAMES:
            continue
        found = _SAMPLE.match(text)
        value = _number(found["value"]) if found else None
        if found is None or value is None:
            tally.note("bad value", "a value of the metrics page is not a number", line.number)
            unknown.add(name[0])
        elif found["name"] == _SETTINGS:
            given = dict(_LABEL.findall(found["labels"] or ""))
            settings = tuple(ConfigEntry("server", key, given[key], rank, line.number) for key in _KEPT if key in given)
        else:
            values, labels = samples.setdefault(found["name"], {}), found["labels"] or ""
            if labels in values:
                # Two pages in one file, for example.
                tally.note("bad value", "the metrics page has a value twice", line.number)
                unknown.add(found["name"])
            values[labels] = value
    for time in _HISTOGRAMS:
        parts = {f"{time}_sum", f"{time}_count"}
        if not parts & unknown and len({frozenset(samples.get(part, ())) for part in parts}) > 1:
            tally.note("bad value", "a histogram of the metrics page lacks a sum or a count")
            unknown |= parts
    # Without the value of one engine, a sum over the engines is unknown.
    sums = {name: sum(values.values()) for name, values in samples.items() if name not in unknown}
    # Each engine of a server has its own start time.
    starts = frozenset(samples[_STARTED].items() if _STARTED in sums else ())
    counters = {
        (name, labels): value
        for name, values in samples.items()
        if name in sums and name != _STARTED
        for labels, value in values.items()
    }
    page = MetricsPage(starts, _known(sums), frozenset(chain(*samples.values())), counters)
    return LogReading(pages=(page,), config=settings, issues=tally.issues(), kind="serving")


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < _MOST else None


def _known(sums: dict[str, float]) -> dict[str, float]:
    """The totals under our names. A time has two totals: its sum in ms, and its count under ``<name> count``."""
    found = {name: sums[one] for name, spellings in _TOTALS.items() for one in spellings[::-1] if one in sums}
    for name, spellings in _TIMES.items():
        for one in spellings[::-1]:
            if f"{one}_sum" in sums and f"{one}_count" in sums:
                found[name], found[f"{name} count"] = sums[f"{one}_sum"] * 1000, sums[f"{one}_count"]
    return found
