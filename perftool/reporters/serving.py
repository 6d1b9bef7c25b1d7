"""Describes the iterations of a serving engine in lines of text, shared by all reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perftool.model.iterations import Serving, ServingPhase, TokenGaps, Weights
from perftool.model.report import Report
from perftool.reporters.labels import format_metric
from perftool.units import format_bytes, format_count, format_ns, format_ratio

# Phases and stages below this share are not mentioned.
_NAMED = 0.01
# Users notice a gap between two tokens that is this many times the median (as in rule SRV104).
_LONG = 5
_RATES = {"output_tokens_per_s": "output tokens/s", "requests_per_s": "requests/s", "preemptions": "preemptions"}
_TIMES = {
    "ttft_ms": "time to first token", "tpot_ms": "per output token", "itl_ms": "between tokens",
    "queue_time_ms": "waiting to start",
}  # fmt: skip
_STAGES = {
    "wait": "waiting for the engine's next batch", "schedule": "scheduling", "prepare": "preparing inputs",
    "forward": "the model", "logits": "logits", "sample": "sampling",
    "post": "postprocessing", "send": "sending the result",
    "detokenize": "turning tokens into text",
}  # fmt: skip


def server_lines(report: Report) -> Iterator[str]:
    """Describe the recorded iterations, and what the client or the server measured."""
    if report.serving:
        yield from serving_lines(report.serving)
    known = {name: format_metric(metric) for name, metric in report.summary.items() if metric.value is not None}
    if not report.serving and "decode_time_ms" in known:
        decode = f"a decode takes {known['decode_time_ms']} (median); the batch is {known['decode_batch']}"
        yield f"According to the log, {decode}."
    rates = [f"{known[name].removesuffix('/s')} {what}" for name, what in _RATES.items() if name in known]
    times = [f"{what} {known[name]}{_p99(name, known)}" for name, what in _TIMES.items() if name in known]
    # An idle server reports only its number of preemptions, which is not worth a line.
    if set(known) & {*_RATES, *_TIMES} - {"preemptions"}:
        yield f"Measured by the client or the server: {', '.join(rates + times)}."


def _p99(name: str, known: Mapping[str, str]) -> str:
    tail = known.get(name.replace("_ms", "_p99_ms")) if name != "queue_time_ms" else None
    return f" (P99 {tail})" if tail else ""


def serving_lines(serving: Serving) -> Iterator[str]:
    """Describe the throughput, each phase, and where the time of a decode goes."""
    yield f"{_throughput(serving)}."
    for phase in serving.phases:
        if phase.share >= _NAMED and phase.name != "idle":
            yield _phase_line(phase, serving)
    decode = next((phase for phase in serving.phases if phase.name == "decode"), None)
    if serving.weights and decode and decode.median_ns:
        yield _weights_line(serving.weights, decode)
    if serving.token_gaps and serving.token_gaps.longest_ns > _LONG * serving.token_gaps.median_ns:
        yield _gaps_line(serving.token_gaps)
    if serving.decode_ns:
        whole = sum(serving.decode_ns.values())
        parts = [(_STAGES.get(stage, stage), ns / whole) for stage, ns in serving.decode_ns.items()]
        named = ", ".join(f"{stage} {format_ratio(share)}" for stage, share in parts if share >= _NAMED)
        yield f"A decode of {format_ns(whole)} (mean): {named}."


def _weights_line(weights: Weights, decode: ServingPhase) -> str:
    read = f"Reading all weights once ({format_bytes(weights.weight_bytes)}, according to the log)"
    rest = "; keys and values are not counted"
    if weights.cache_tokens is not None and weights.cache_bytes is not None:
        tokens = f"{format_count(weights.cache_tokens)} tokens (at most {format_bytes(weights.cache_bytes)})"
        read, rest = f"{read} and the keys and values of {tokens}", ""
    ns = weights.weights_ns + (weights.cache_ns or 0)
    share = format_ratio(ns / decode.median_ns)
    return f"{read} takes {format_ns(ns)} at the memory's bandwidth, {share} of the median decode{rest}."


def _gaps_line(gaps: TokenGaps) -> str:
    prompts = f", while {format_count(gaps.prompt_tokens)} prompt tokens are computed" if gaps.prompt_tokens else ""
    times = f"median {format_ns(gaps.median_ns)}, P99 {format_ns(gaps.p99_ns)}"
    without = ", without compilations" if gaps.compiling else ""
    return f"Time between two tokens of a request{without}: {times}, longest {format_ns(gaps.longest_ns)}{prompts}."


def _throughput(serving: Serving) -> str:
    rates = ((serving.generated_per_s, "tokens/s generated"), (serving.prompt_per_s, "prompt tokens/s"))
    known_rates = ", ".join(f"{format_count(round(rate))} {what}" for rate, what in rates if rate)
    empty = serving.without_requests_ns / serving.window_ns if serving.window_ns else 0
    idle = f"; no iteration runs for {format_ratio(empty)} of the time" if empty >= _NAMED else ""
    return f"{known_rates or 'Iterations of unknown sizes'} over {format_ns(serving.window_ns)}{idle}"


def _phase_line(phase: ServingPhase, serving: Serving) -> str:
    limit = f" of {serving.batch_limit}" if serving.batch_limit else ""
    batch = f", batch {phase.batch:.3g}{limit}" if phase.batch is not None else ""
    several = f"median {format_ns(phase.median_ns)}, P99 {format_ns(phase.p99_ns)}"
    times = several if phase.iterations > 1 else format_ns(phase.median_ns)
    return f"{phase.name:<8} {format_ratio(phase.share):>7} of the time, {phase.iterations} x: {times}{batch}"
