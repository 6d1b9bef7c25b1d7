"""Records about a language-model server: buckets, load over time, client results, and counters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

BucketOrigin = Literal["warmed", "missed", "added"]
Statistic = Literal["mean", "median", "p99", "total", "value"]


@dataclass(frozen=True, slots=True)
class Bucket:
    """A padded input shape of vLLM on Gaudi: ``batch`` requests of ``query`` tokens, with ``blocks`` KV-cache blocks in
    total.

    ``warmed`` buckets were prepared before serving, ``missed`` shapes had no bucket while serving, and ``added``
    buckets were created for them. ``query`` or ``blocks`` is None if the log has no such dimension.
    """

    phase: str
    batch: int
    query: int | None
    blocks: int | None
    origin: BucketOrigin
    rank: int | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class ServingInterval:
    """Statistics since the previous statistics line in the log. ``time_ns`` is relative to 1970 (in 1972 if the line
    states no year), or to midnight of the log's first day if the line states no date. ``since_ns`` is the time since
    the previous line of the engine. ``process`` are the labels of the process that wrote the line: engines of two
    servers may have the same name.

    Rates are in tokens per second, and ratios are between 0 and 1. ``running`` and ``waiting`` are numbers of requests
    at the end of the interval. Drafts come from speculative decoding. ``acceptance_length`` is the mean number of
    tokens per model call.
    """

    engine: str
    time_ns: int | None
    prompt_tokens_per_s: float | None = None
    generation_tokens_per_s: float | None = None
    running: int | None = None
    waiting: int | None = None
    cache_ratio: float | None = None
    prefix_hit_ratio: float | None = None
    preemptions: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    acceptance_length: float | None = None
    since_ns: int | None = None
    process: str = ""
    rank: int | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class LoggedIteration:
    """One model call, as logged by the engine. ``dur_ns`` includes scheduling and postprocessing."""

    engine: str
    iteration: int
    prompts: int
    prompt_tokens: int
    generating: int
    generated_tokens: int
    dur_ns: int
    rank: int | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class ServingNumber:
    """A figure from a server or client. If ``name`` ends in a unit, it is a time in ms or a rate per second; otherwise,
    it is a count."""

    name: str
    statistic: Statistic
    value: float


@dataclass(frozen=True, slots=True)
class ClientResult:
    """The result of one run of a benchmark client. A printed result is rounded, so it is not ``exact``."""

    numbers: tuple[ServingNumber, ...]
    exact: bool = True

    @property
    def requests(self) -> float:
        """The number of successful requests; 0 if the result does not state this number."""
        return self.value("requests")

    def value(self, name: str) -> float:
        """Return the first number called ``name``, or 0 if there is none."""
        return next((one.value for one in self.numbers if one.name == name), 0)


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """A saved ``/metrics`` page. ``totals`` contains the known counters since the server started, summed over its
    engines. ``starts`` are the times when the engines started, by their labels, in seconds since 1970. ``labels`` are
    the labels of the counters, such as the model; ``counters`` are the values by name and labels."""

    starts: frozenset[tuple[str, float]]
    totals: dict[str, float]
    labels: frozenset[str] = frozenset()
    counters: dict[tuple[str, str], float] = field(default_factory=dict)

    def may_precede(self, later: MetricsPage) -> bool:
        """Whether ``later`` may be a later page from the same server, with no engine restarted in between. Counters
        only grow, and none disappears. Some of them may appear only with the first request."""
        return (
            bool(self.starts) == bool(later.starts)
            and self.starts <= later.starts
            and self.labels <= later.labels
            and all(value <= later.totals.get(name, -1) for name, value in self.totals.items())
            and all(value <= later.counters.get(key, -1) for key, value in self.counters.items())
        )
