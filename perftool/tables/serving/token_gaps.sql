-- One row per iteration that generates for requests that have generated before: the time since their previous token.
-- Prompts processed in that time delay these requests. At least one request is in both iterations if the later
-- iteration generates for more requests than the prompts in between added. Iterations that compile are left out.
--
-- needs: serving_iterations
-- empty without: serving_iterations
-- column rank: INTEGER, distributed rank
-- column iteration: BIGINT, serving_iterations.iteration
-- column ts: BIGINT, start of the first iteration after the previous iteration that generates, in ns
-- column end: BIGINT, end of this iteration in ns
-- column gap_ns: BIGINT, time between the tokens
-- column prompt_tokens: BIGINT, prompt tokens processed in this time; NULL if the annotations do not state them
-- column prompts: BOOLEAN, whether any prompt was processed in this time
-- column decode_ns: BIGINT, median time of a decode on the rank
WITH ordered AS (
    SELECT rank, iteration, phase, ts, ts + time_ns AS "end", time_ns, batch, prompt_tokens, generated_tokens,
           phase IN ('decode', 'mixed') AS generates,
           sum((phase IN ('decode', 'mixed'))::INTEGER) OVER (PARTITION BY rank ORDER BY iteration ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS number,
           median(time_ns) FILTER (phase = 'decode') OVER (PARTITION BY rank) AS decode_ns
    FROM serving_iterations WHERE compiled = 0 AND phase <> 'idle'
),
between_tokens AS (
    SELECT rank, max(iteration) AS iteration, max("end") AS "end", min(ts) AS ts,
           sum(prompt_tokens)::BIGINT AS prompt_tokens, sum(batch) FILTER (phase = 'prefill') AS begun,
           max(generated_tokens) FILTER (generates) AS generated, bool_or(phase <> 'decode') AS prompts, max(decode_ns) AS decode_ns
    FROM ordered WHERE number > 0 GROUP BY rank, number HAVING bool_or(generates)
)
SELECT rank, iteration, ts, "end", "end" - ts AS gap_ns, prompt_tokens, prompts, decode_ns::BIGINT AS decode_ns
FROM between_tokens WHERE generated > coalesce(begun, 0) ORDER BY rank, iteration
