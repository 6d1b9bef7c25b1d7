-- One row per iteration of a serving engine, that is, per call to the model for a batch of requests. The call processes
-- prompts (prefill), generates tokens (decode), or does both (mixed). Iterations come from the annotations of vLLM and
-- SGLang, and from vLLM's high-level profiler on Gaudi. Times of stages are NULL if the recording does not show the
-- stage.
--
-- needs: _iteration_marks, serving_stages, _compile_events, slices, launches, _name_roles
-- empty without: _iteration_marks
-- column rank: INTEGER, distributed rank
-- column iteration: BIGINT, position in the recording, from 0
-- column phase: VARCHAR, prefill, decode, mixed or idle (a call without requests)
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, duration of the annotation in ns; on an asynchronous device, only the host's part
-- column end: BIGINT, end of the annotation in ns
-- column time_ns: BIGINT, time until the next iteration starts if it generates for the same requests, else until the annotation and its device work end
-- column gap_before_ns: BIGINT, time since the end of the previous annotation; NULL for the first
-- column waited_ns: BIGINT, the part of gap_before_ns in which the thread waits for a batch or a request; NULL if no stacks were recorded
-- column batch: BIGINT, number of requests
-- column prompt_tokens: BIGINT, prompt tokens that the iteration processes
-- column context_tokens: BIGINT, tokens in the caches of its requests, including prompt_tokens
-- column generated_tokens: BIGINT, tokens processed for requests that are already generating, including drafts
-- column tokens: BIGINT, prompt_tokens + generated_tokens
-- column bucket_batch: BIGINT, batch that the iteration is padded to (Gaudi)
-- column bucket_query: BIGINT, tokens that each prompt is padded to (Gaudi)
-- column bucket_blocks: BIGINT, blocks of cache that the iteration is padded to (Gaudi)
-- column blocks_used: BIGINT, blocks of cache that its requests fill (Gaudi)
-- column graphs: BOOLEAN, whether the iteration replays a captured graph
-- column schedule_ns: BIGINT, scheduling time before the iteration
-- column prepare_ns: BIGINT, time to prepare the inputs
-- column forward_ns: BIGINT, time of the model's forward pass
-- column logits_ns: BIGINT, time to compute the logits
-- column sample_ns: BIGINT, sampling time
-- column post_ns: BIGINT, time to process the sampled tokens
-- column send_ns: BIGINT, time to send the result to the engine
-- column detokenize_ns: BIGINT, time to turn the tokens into text, if the same thread does this
-- column compile_ns: BIGINT, time of compilations during the iteration; 0 if the recording shows none
-- column compiled: BIGINT, number of compilations during the iteration
WITH stages AS (
    SELECT rank, iteration, sum(dur) FILTER (stage = 'schedule') AS schedule_ns, sum(dur) FILTER (stage = 'prepare') AS prepare_ns,
           sum(dur) FILTER (stage = 'forward') AS forward_ns, sum(dur) FILTER (stage = 'logits') AS logits_ns,
           sum(dur) FILTER (stage = 'sample') AS sample_ns, sum(dur) FILTER (stage = 'post') AS post_ns,
           sum(dur) FILTER (stage = 'send') AS send_ns, sum(dur) FILTER (stage = 'detokenize') AS detokenize_ns
    FROM serving_stages GROUP BY rank, iteration
),
waiting AS (
    SELECT s.rank, s.iteration, sum(least(s."end", m.ts) - greatest(s.ts, m.ts - m.gap_before_ns)) AS ns
    FROM serving_stages AS s JOIN _iteration_marks AS m ON m.rank = s.rank AND m.iteration = s.iteration
    WHERE s.stage = 'wait' AND s.ts < m.ts AND s."end" > m.ts - m.gap_before_ns GROUP BY s.rank, s.iteration
),
compiling AS (
    SELECT rank, ts, "end" FROM _compile_events
    UNION ALL SELECT rank, ts, "end" FROM slices WHERE cat = '' AND side = 'host' AND starts_with(name, 'GRAPH COMPILE: ')
),
-- The high-level profiler writes one slice per compiled graph; torch.compile writes nested slices.
placed AS (
    SELECT c.rank, m.iteration::INTEGER AS class, c.ts, least(c."end", m.until) AS "end"
    FROM compiling AS c ASOF JOIN _iteration_marks AS m ON m.rank = c.rank AND c.ts >= m.ts WHERE c.ts < m.until
),
compiled AS (SELECT rank, class AS iteration, sum("end" - ts) AS ns, count(*) AS n FROM interval_union(placed) GROUP BY ALL),
launched AS (
    SELECT l.rank, m.iteration, max(l.device_end) AS "end", bool_or(l.name IN (SELECT name FROM _name_roles WHERE list_contains(roles, 'graph_launch'))) AS graphs
    FROM launches AS l ASOF JOIN _iteration_marks AS m ON m.rank = l.rank AND l.ts >= m.ts
    WHERE l."end" <= m.until AND NOT l.own_work GROUP BY l.rank, m.iteration
),
stacked AS (SELECT DISTINCT rank FROM slices WHERE cat = 'python_function')
SELECT m.rank, m.iteration, m.phase, m.ts, m."end" - m.ts AS dur, m."end",
       CASE WHEN m.until > m."end" THEN m.until ELSE greatest(m."end", coalesce(l."end", m."end")) END - m.ts AS time_ns,
       m.gap_before_ns, CASE WHEN s.rank IS NOT NULL THEN coalesce(w.ns, 0) END::BIGINT AS waited_ns,
       m.batch, m.prompt_tokens, m.context_tokens, m.generated_tokens, m.prompt_tokens + m.generated_tokens AS tokens,
       m.bucket_batch, m.bucket_query, m.bucket_blocks, m.blocks_used, coalesce(m.graphs, l.graphs) AS graphs,
       t.schedule_ns::BIGINT AS schedule_ns, t.prepare_ns::BIGINT AS prepare_ns, t.forward_ns::BIGINT AS forward_ns,
       t.logits_ns::BIGINT AS logits_ns, t.sample_ns::BIGINT AS sample_ns, t.post_ns::BIGINT AS post_ns,
       t.send_ns::BIGINT AS send_ns, t.detokenize_ns::BIGINT AS detokenize_ns,
       coalesce(c.ns, 0)::BIGINT AS compile_ns, coalesce(c.n, 0) AS compiled
FROM _iteration_marks AS m
LEFT JOIN stages AS t ON t.rank = m.rank AND t.iteration = m.iteration
LEFT JOIN waiting AS w ON w.rank = m.rank AND w.iteration = m.iteration
LEFT JOIN compiled AS c ON c.rank = m.rank AND c.iteration = m.iteration
LEFT JOIN launched AS l ON l.rank = m.rank AND l.iteration = m.iteration
LEFT JOIN stacked AS s ON s.rank = m.rank
ORDER BY m.rank, m.iteration
