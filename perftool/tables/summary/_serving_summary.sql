-- One row per summary number that exists only for language-model servers. Used by summary.
--
-- needs: serving_numbers, serving_intervals, serving_iterations, logged_iterations, token_gaps
-- empty without: serving_numbers or serving_intervals or serving_iterations or logged_iterations
-- column metric: VARCHAR, name of the number
-- column value: DOUBLE, value of the number
WITH wanted(metric, name, statistic, sources) AS (
    VALUES ('output_tokens_per_s', 'output_tokens_per_s', 'value', ['client']),
           ('requests_per_s', 'requests_per_s', 'value', ['client']),
           ('ttft_ms', 'ttft_ms', 'mean', ['client', 'server']), ('ttft_p99_ms', 'ttft_ms', 'p99', ['client']),
           ('tpot_ms', 'tpot_ms', 'mean', ['client', 'server']), ('tpot_p99_ms', 'tpot_ms', 'p99', ['client']),
           ('itl_ms', 'itl_ms', 'mean', ['client', 'server']), ('itl_p99_ms', 'itl_ms', 'p99', ['client']),
           ('queue_time_ms', 'queue_ms', 'mean', ['server']), ('preemptions', 'preemptions', 'total', ['server'])
),
counted AS (
    SELECT w.metric, arg_min(n.value, (list_position(w.sources, n.source), n.value)) AS value
    FROM wanted AS w JOIN serving_numbers AS n ON n.name = w.name AND n.statistic = w.statistic AND n.source IN w.sources
    GROUP BY w.metric
),
-- Each engine of a server logs its own lines; their rates add up.
logged AS (
    SELECT sum(tokens_per_s) AS tokens_per_s, sum(preemptions) AS preemptions
    FROM (
        SELECT path, engine, avg(generation_tokens_per_s) FILTER (generation_tokens_per_s > 0 OR running > 0) AS tokens_per_s,
               sum(preemptions) AS preemptions
        FROM serving_intervals WHERE engine NOT LIKE '%Aggregated' GROUP BY path, process, engine
    )
),
-- Ranks that share a model run the same iterations; other ranks serve their own requests. Either way, the slowest rank
-- counts.
decodes AS (
    SELECT median(time_ns) / 1e6 AS ms, sum(batch * time_ns) / sum(time_ns) FILTER (batch IS NOT NULL) AS batch
    FROM serving_iterations WHERE phase = 'decode' GROUP BY rank ORDER BY ms DESC, rank LIMIT 1
),
-- Without a trace, use the decodes in the log.
logged_decodes AS (
    SELECT median(dur) / 1e6 AS ms, sum(generating * dur) / nullif(sum(dur), 0) AS batch
    FROM logged_iterations WHERE prompts = 0 AND generating > 0 AND NOT EXISTS (FROM serving_iterations)
),
gaps AS (SELECT max(ms) AS ms FROM (SELECT quantile_cont(gap_ns, 0.99) / 1e6 AS ms FROM token_gaps GROUP BY rank))
FROM counted
UNION ALL SELECT 'decode_time_ms', ms FROM (FROM decodes UNION ALL FROM logged_decodes) WHERE ms IS NOT NULL
UNION ALL SELECT 'decode_batch', batch FROM (FROM decodes UNION ALL FROM logged_decodes) WHERE batch IS NOT NULL
UNION ALL SELECT 'token_gap_p99_ms', ms FROM gaps WHERE ms IS NOT NULL
UNION ALL SELECT 'output_tokens_per_s', tokens_per_s FROM logged
          WHERE tokens_per_s IS NOT NULL AND NOT EXISTS (FROM counted WHERE metric = 'output_tokens_per_s')
UNION ALL SELECT 'preemptions', preemptions FROM logged
          WHERE preemptions IS NOT NULL AND NOT EXISTS (FROM counted WHERE metric = 'preemptions')
