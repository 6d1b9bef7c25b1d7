"""Records about a language-model server: buckets, load over time, results of clients, and counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BucketOrigin = Literal["warmed", "missed", "added"]
Statistic = Literal["mean", "median", "p99", "total", "value"]


@dataclass(frozen=True, slots=True)
class Bucket:
    """A padded input shape of vLLM on Gaudi: ``batch`` requests of ``query`` tokens, with ``blocks`` KV-cache blocks in
    all.

    ``warmed`` buckets were prepared before serving, ``missed`` shapes had no bucket during serving, and ``added``
    buckets were made for them. ``query`` or ``blocks`` is None where the log has no such dimension.
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
    """Statistics about the time since the previous line of statistics. ``time_ns`` counts from midnight of the log's
    first day.

    Rates are in tokens per second, ratios between 0 and 1; ``running`` and ``waiting`` count requests at the end of
    this time. Drafts come from speculative decoding, with which a call of the model produces ``acceptance_length``
    tokens on average.
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
    rank: int | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class LoggedIteration:
    """One call of the model, as the engine logs it: ``dur_ns`` includes scheduling and postprocessing."""

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
    """A result of a server or client: a time in ms or a rate per second if ``name`` ends in that unit, else a count."""

    name: str
    statistic: Statistic
    value: float


@dataclass(frozen=True, slots=True)
class ClientResult:
    """The result of one run of a benchmark client; a printed result is not ``exact``, because it is rounded."""

    numbers: tuple[ServingNumber, ...]
    exact: bool = True

    @property
    def requests(self) -> float:
        """The number of requests that succeeded; 0 when the result does not state it."""
        return next((one.value for one in self.numbers if one.name == "requests"), 0)


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """A saved ``/metrics`` page: the total for each known name since the server started, at the time ``started``."""

    started: float | None
    totals: dict[str, float]
