"""The iterations of a serving engine: time, batch and tokens by phase, and where the time of a decode goes."""

from __future__ import annotations

from typing import Any

from perftool.model.iterations import Serving, ServingPhase, TokenGaps, Weights
from perftool.store.trace_store import TraceStore

# An iteration on an asynchronous device may end after the next one has started. Its time counts only until then.
_LASTING = """
SELECT *, least(time_ns, coalesce(lead(ts) OVER (ORDER BY ts) - ts, time_ns)) AS ns
FROM serving_iterations WHERE rank = (SELECT min(rank) FROM serving_iterations)
"""
_WHOLE = f"""
SELECT min(rank) AS rank, max(ts + time_ns) - min(ts) AS window_ns,
       (max(ts + time_ns) - min(ts) - sum(ns))::BIGINT AS without_requests_ns
FROM ({_LASTING})
"""
_PHASES = f"""
SELECT phase AS name, count(*) AS iterations, sum(ns)::BIGINT AS total_ns, sum(ns) / greatest($window, 1) AS share,
       median(time_ns)::BIGINT AS median_ns, quantile_cont(time_ns, 0.99)::BIGINT AS p99_ns,
       sum(batch * ns) / nullif(sum(ns) FILTER (batch IS NOT NULL), 0) AS batch,
       sum(prompt_tokens)::BIGINT AS prompt_tokens, sum(generated_tokens)::BIGINT AS generated_tokens
FROM ({_LASTING}) GROUP BY phase ORDER BY total_ns DESC, name
"""
# Host stages show where the time goes only if the CPU is the device, in which case a device op is the op itself.
_DECODE = f"""
SELECT avg(time_ns)::BIGINT AS whole, avg(waited_ns)::BIGINT AS wait, avg(schedule_ns)::BIGINT AS schedule,
       avg(prepare_ns)::BIGINT AS prepare, avg(forward_ns)::BIGINT AS forward, avg(logits_ns)::BIGINT AS logits,
       avg(sample_ns)::BIGINT AS sample, avg(post_ns)::BIGINT AS post,
       avg(send_ns)::BIGINT AS send, avg(detokenize_ns)::BIGINT AS detokenize
FROM ({_LASTING}) WHERE phase = 'decode' AND rank NOT IN (SELECT rank FROM device_ops WHERE op IS DISTINCT FROM id)
"""
_GAPS = """
SELECT median(gap_ns)::BIGINT AS median_ns, quantile_cont(gap_ns, 0.99)::BIGINT AS p99_ns, max(gap_ns) AS longest_ns,
       coalesce(arg_min(prompt_tokens, (-gap_ns, ts)), 0) AS prompt_tokens,
       (SELECT count(*) FROM serving_iterations WHERE rank = $rank AND compiled > 0) AS compiling
FROM token_gaps WHERE rank = $rank HAVING count(*) > 0
"""
_LIMIT = "SELECT max(try_cast(value AS BIGINT)) AS value FROM config WHERE key = 'max_num_seqs'"
# The time to read all weights, and the KV cache of a median decode, at the memory bandwidth of the device. A decode
# reads only some of the weights if the model has experts or a separate embedding table, and only some of the KV cache
# with sliding-window attention. The memory that vLLM reports is meaningless if the user sets the number of blocks.
_WEIGHTS = """
WITH logged AS (
    SELECT max(value) FILTER (kind = 'weights') * 1024**3 AS weights,
           max(value) FILTER (kind = 'kv_memory') * 1024**3 AS memory, max(value) FILTER (kind = 'kv_cache') AS room
    FROM log_events WHERE NOT (kind = 'kv_memory' AND EXISTS (FROM config WHERE key = 'num_gpu_blocks_override'))
),
held AS (
    SELECT median(context_tokens) AS tokens FROM serving_iterations WHERE phase = 'decode' AND rank = $rank
),
sized AS (SELECT weights, tokens, tokens * memory / nullif(room, 0) AS cache FROM logged, held)
SELECT weights::BIGINT AS weight_bytes, (weights / f.value * 1e9)::BIGINT AS weights_ns,
       tokens::BIGINT AS cache_tokens, cache::BIGINT AS cache_bytes, (cache / f.value * 1e9)::BIGINT AS cache_ns
FROM sized, rated_devices AS d JOIN device_facts AS f USING (device)
WHERE d.rank = $rank AND f.fact = 'memory_bandwidth' AND weights > 0
"""


def serving(store: TraceStore) -> Serving | None:
    """Return the iterations of a serving engine, or None for any other run."""
    if not store.has_rows("serving_iterations"):
        return None
    store.build(["device_ops", "config", "token_gaps", "log_events", "rated_devices", "device_facts"])
    whole = store.select(_WHOLE)[0]
    gaps = store.select(_GAPS, {"rank": whole["rank"]})
    weights = store.select(_WEIGHTS, {"rank": whole["rank"]})
    phases = store.select(_PHASES, {"window": whole["window_ns"]})
    return Serving(
        **whole,
        phases=tuple(ServingPhase(**row) for row in phases),
        decode_ns=_decode(store.select(_DECODE)[0]),
        batch_limit=store.select(_LIMIT)[0]["value"],
        token_gaps=TokenGaps(**gaps[0]) if gaps else None,
        weights=Weights(**weights[0]) if weights else None,
    )


def _decode(row: dict[str, Any]) -> dict[str, int]:
    """Return the stages of a mean decode and the remaining time, in ns, largest first. The result is empty if no
    forward pass was recorded."""
    whole = row.pop("whole")
    stages = {stage: ns for stage, ns in row.items() if ns}
    if "forward" not in stages:
        return {}
    stages["other"] = max(whole - sum(stages.values()), 0)
    return dict(sorted(stages.items(), key=lambda stage: -stage[1]))
