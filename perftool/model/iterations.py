"""The iterations of a serving engine, for reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ServingPhase:
    """The iterations of one phase: prefill, decode, mixed or idle (calls to the model without requests).

    ``share`` is their share of the window. ``batch`` is the mean batch size, weighted by time. Numbers missing from the
    annotations are None.
    """

    name: str
    iterations: int
    total_ns: int
    share: float
    median_ns: int
    p99_ns: int
    batch: float | None
    prompt_tokens: int | None
    generated_tokens: int | None


@dataclass(frozen=True)
class TokenGaps:
    """The time between consecutive tokens of a request. ``prompt_tokens`` were processed during the longest gap.

    ``compiling`` is the number of iterations left out because they include compilation.
    """

    median_ns: int
    p99_ns: int
    longest_ns: int
    prompt_tokens: int
    compiling: int = 0


@dataclass(frozen=True)
class Weights:
    """The size of a rank's weights according to the log, and the time to read them once from memory.

    The ``cache_`` fields are the same figures for the KV cache of a median decode, which contains ``cache_tokens``
    tokens. They are None if the annotations lack context lengths, or the log lacks the cache size.
    """

    weight_bytes: int
    weights_ns: int
    cache_tokens: int | None = None
    cache_bytes: int | None = None
    cache_ns: int | None = None


@dataclass(frozen=True)
class Serving:
    """The iterations of ``rank``, the lowest rank with iterations.

    ``window_ns`` is the time from the start of the first iteration to the end of the last. ``without_requests_ns`` is
    the part of it in which no iteration ran or was prepared. ``decode_ns`` breaks a mean decode down by stage, as far
    as the recording shows stages. ``batch_limit`` is max_num_seqs, or None if no input states it. ``token_gaps`` is
    None if no request generates more than one token. ``weights`` is None if their size or the memory bandwidth is
    unknown.
    """

    rank: int
    window_ns: int
    without_requests_ns: int
    phases: tuple[ServingPhase, ...]
    decode_ns: Mapping[str, int]
    batch_limit: int | None = None
    token_gaps: TokenGaps | None = None
    weights: Weights | None = None

    @property
    def generated_per_s(self) -> float:
        """Generated tokens per second of the window, not counting the first token of each request."""
        return sum(phase.generated_tokens or 0 for phase in self.phases) / (self.window_ns / 1e9)

    @property
    def prompt_per_s(self) -> float:
        """Prompt tokens per second of the window."""
        return sum(phase.prompt_tokens or 0 for phase in self.phases) / (self.window_ns / 1e9)
