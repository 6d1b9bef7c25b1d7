-- The iterations (calls to the model) of a serving engine, from its annotations. Numbers missing from the annotation
-- are NULL.
--
-- vLLM writes execute_context_1(140)_generation_3(3), with detailed_trace_annotation
-- execute_143_context_1(sq140sk140sqsq..sqsk..)_generation_3(sq3sk900..), and before 0.11 execute_new_1_cached_3.
-- SGLang writes step[DECODE bs=32]. With speculative decoding, the draft model writes the same names. The decodes are
-- then drafts, and the calls that generate are step[TARGET_VERIFY bs=4]. Each prompt appears twice: for the model and
-- for the draft model. The high-level profiler of vLLM on Gaudi writes slices named prefill and decode, without a
-- category. At the start of each, it writes a counter named utils. The name of model_forward inside the slice contains
-- the shape of the bucket. For a prompt, the counter's utilisation shows how full the bucket is; for a decode, it is a
-- sum of contexts divided by the batch.
--
-- Another program may also call such an engine, for example a training that generates samples. A rank has no iterations
-- if less than half of its device work comes from calls to the engine. The work before the first call, such as the
-- start-up of the engine, does not count unless it belongs to a training or to the profiler's steps.
--
-- needs: slices, launches, _name_roles
-- empty without: _name_roles.roles=iteration or slices.cat=
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, tracks.id
-- column iteration: BIGINT, position in the recording, from 0
-- column phase: VARCHAR, prefill, decode, mixed or idle (a call without requests)
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end of the annotation in ns
-- column until: BIGINT, start of the next iteration if it generates for the same requests, else the end of the annotation
-- column gap_before_ns: BIGINT, time since the end of the previous annotation; NULL for the first
-- column batch: BIGINT, number of requests
-- column prompt_tokens: BIGINT, prompt tokens that the iteration processes
-- column context_tokens: BIGINT, tokens in the caches of its requests, including prompt_tokens
-- column generated_tokens: BIGINT, tokens processed for requests that are already generating, including drafts
-- column bucket_batch: BIGINT, batch that the iteration is padded to
-- column bucket_query: BIGINT, tokens that each prompt is padded to
-- column bucket_blocks: BIGINT, blocks of cache that the iteration is padded to
-- column blocks_used: BIGINT, blocks of cache that its requests fill
-- column graphs: BOOLEAN, whether the iteration replays a captured graph
WITH extracted AS (
    SELECT name,
           regexp_extract(name, '^execute_(?:\d+_)?context_(\d{1,12})\((?:sq)?(\d{1,12})(?:_\d+|sk(\d{1,12})sqsq\d+sqsk\d+)?\)_generation_(\d{1,12})\((?:sq)?(\d{1,12})(?:_\d+|sk(\d{1,12})sqsq\d+sqsk\d+)?\)$',
                          ['c', 'ct', 'ck', 'g', 'gt', 'gk']) AS v,
           regexp_extract(name, '^execute_new_(\d{1,12})_cached_(\d{1,12})$', ['c', 'g']) AS e,
           regexp_extract(name, '^step\[(EXTEND|SPLIT_PREFILL|DECODE|TARGET_VERIFY|MIXED|IDLE) bs=(\d{1,12})(?: toks=(\d{1,12}))?(?: (.*))?\]$',
                          ['mode', 'bs', 'toks', 'more']) AS s
    FROM _name_roles WHERE cat = 'user_annotation' AND list_contains(roles, 'iteration')
),
named AS (SELECT * FROM extracted WHERE v.c <> '' OR e.c <> '' OR s.mode <> ''),
shares AS (
    SELECT name, nullif(s.mode, '') AS mode, try_cast(s.bs AS BIGINT) AS bs, try_cast(v.ct AS BIGINT) AS ct, try_cast(v.gt AS BIGINT) AS gt,
           try_cast(coalesce(nullif(v.c, ''), nullif(e.c, ''), nullif(regexp_extract(s.more, '\bc=(\d{1,12})\b', 1), '')) AS BIGINT) AS c,
           try_cast(coalesce(nullif(v.g, ''), nullif(e.g, ''), nullif(regexp_extract(s.more, '\bg=(\d{1,12})\b', 1), '')) AS BIGINT) AS g,
           try_cast(coalesce(nullif(s.toks, ''), nullif(regexp_extract(s.more, '\bc_sq=(\d{1,12})\b', 1), '')) AS BIGINT) AS toks,
           try_cast(nullif(regexp_extract(s.more, '\bg_sq=(\d{1,12})\b', 1), '') AS BIGINT) AS drafted,
           try_cast(coalesce(nullif(v.ck, ''), nullif(regexp_extract(s.more, '\bc_sk=(\d{1,12})\b', 1), '')) AS BIGINT) AS ck,
           try_cast(coalesce(nullif(v.gk, ''), nullif(regexp_extract(s.more, '\bg_sk=(\d{1,12})\b', 1), '')) AS BIGINT) AS gk
    FROM named
),
spelled AS (
    SELECT name,
           CASE WHEN mode IN ('EXTEND', 'SPLIT_PREFILL') THEN 'prefill' WHEN mode IN ('DECODE', 'TARGET_VERIFY') THEN 'decode'
                WHEN mode IN ('MIXED', 'IDLE') THEN lower(mode)
                WHEN c > 0 AND g > 0 THEN 'mixed' WHEN c > 0 THEN 'prefill' WHEN g > 0 THEN 'decode' WHEN g = 0 THEN 'idle' END AS phase,
           coalesce(bs, c + g) AS batch,
           CASE WHEN phase IN ('decode', 'idle') THEN 0 ELSE coalesce(ct, toks) END AS prompt_tokens,
           CASE WHEN ck IS NOT NULL OR gk IS NOT NULL THEN coalesce(ck, 0) + coalesce(gk, 0) END AS context_tokens,
           CASE WHEN phase IN ('prefill', 'idle') THEN 0 WHEN phase = 'decode' THEN coalesce(gt, drafted, CASE WHEN mode = 'DECODE' THEN bs END, g) ELSE coalesce(gt, drafted, g) END AS generated_tokens,
           mode
    FROM shares
),
annotated AS (
    SELECT s.id, s.rank, s.track, n.name, n.mode, n.phase, s.ts, s."end", n.batch, n.prompt_tokens, n.context_tokens, n.generated_tokens,
           max(s."end") OVER (PARTITION BY s.rank ORDER BY s.ts, s."end" DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach
    FROM slices AS s JOIN spelled AS n ON n.name = s.name
    WHERE s.cat = 'user_annotation' AND s.side = 'host'
),
verifying AS (SELECT DISTINCT rank FROM annotated WHERE mode = 'TARGET_VERIFY'),
-- An annotation inside another annotation belongs to the same iteration.
outermost AS (
    SELECT *, lag(name) OVER (PARTITION BY rank ORDER BY ts, id) AS before FROM annotated WHERE reach IS NULL OR ts >= reach
),
called AS (
    SELECT * EXCLUDE (reach, name, mode, before) FROM outermost
    WHERE rank NOT IN (FROM verifying) OR mode NOT IN ('DECODE', 'EXTEND') OR mode = 'EXTEND' AND name IS DISTINCT FROM before
),
-- Select the slices without a category first. Few files have them, and such files have no other slices.
profiled AS (
    SELECT s.id, s.rank, s.track, s.name, s.ts, s."end" FROM slices AS s
    WHERE s.cat = '' AND s.side = 'host'
        AND (s.name IN ('prefill', 'decode', 'warmup', 'model_executable') OR starts_with(s.name, 'model_forward_bs'))
),
forwards AS (
    SELECT rank, ts, regexp_extract(name, '^model_forward_bs(\d{1,9})_seq(\d{1,9})_ctx(\d{1,9})_graphs([TF])$', ['b', 'q', 'k', 'g']) AS shape
    FROM profiled WHERE starts_with(name, 'model_forward_bs')
),
counters AS (
    SELECT rank, ts,
           json_extract_string(args, ['$.prompt_batch_size', '$.prompt_bucket_batch_size', '$.prompt_bucket_seq_len', '$.prompt_bucket_ctx_blocks', '$.prompt_batch_token_utilization']) AS p,
           json_extract_string(args, ['$.decode_batch_size', '$.decode_bucket_batch_size', '$.decode_bucket_seq_len', '$.decode_bucket_ctx_blocks', '$.decode_batch_token_utilization']) AS d,
           try_cast(arg(args, 'cache_num_blocks_used') AS INTEGER)::BIGINT AS blocks_used
    FROM raw WHERE ph = 'C' AND name = 'utils' AND rank IN (SELECT rank FROM profiled)
),
warm_ups AS (SELECT rank, ts, max("end") OVER (PARTITION BY rank ORDER BY ts) AS reach FROM profiled WHERE name = 'warmup'),
calls AS (
    SELECT p.id, p.rank, p.track, p.name AS phase, p.ts, p."end"
    FROM profiled AS p ASOF LEFT JOIN warm_ups AS w ON w.rank = p.rank AND p.ts >= w.ts
    WHERE p.name IN ('prefill', 'decode') AND (w.reach IS NULL OR p."end" > w.reach)
        -- The name of the model's call shows the shape only on the first rank; on other ranks, it is model_executable.
        AND p.rank IN (SELECT rank FROM forwards UNION SELECT rank FROM profiled WHERE name = 'model_executable')
),
-- The first counter and the first call to the model after the start of a slice belong to this slice.
measured AS (
    SELECT c.*, k.blocks_used, f.shape,
           list_transform(CASE c.phase WHEN 'decode' THEN k.d ELSE k.p END, lambda text: CASE WHEN try_cast(text AS DOUBLE) BETWEEN 0 AND 1e9 THEN try_cast(text AS DOUBLE) END) AS n
    FROM calls AS c
    ASOF LEFT JOIN counters AS k ON k.rank = c.rank AND c.ts <= k.ts
    ASOF LEFT JOIN forwards AS f ON f.rank = c.rank AND c.ts <= f.ts
),
high_level AS (
    SELECT m.id, m.rank, m.track, m.phase, m.ts, m."end", n[1]::BIGINT AS batch,
           CASE phase WHEN 'prefill' THEN least(round(n[5] * n[2] * n[3]), 1e12)::BIGINT ELSE 0 END AS prompt_tokens,
           CASE phase WHEN 'decode' THEN least(round(n[5] * n[2] * n[3]), 1e12)::BIGINT END AS context_tokens,
           CASE phase WHEN 'decode' THEN n[1]::BIGINT ELSE 0 END AS generated_tokens,
           coalesce(n[2]::BIGINT, try_cast(shape.b AS BIGINT)) AS bucket_batch,
           coalesce(n[3]::BIGINT, try_cast(shape.q AS BIGINT)) AS bucket_query,
           coalesce(n[4]::BIGINT, try_cast(shape.k AS BIGINT)) AS bucket_blocks, blocks_used,
           CASE shape.g WHEN 'T' THEN true WHEN 'F' THEN false END AS graphs
    FROM measured AS m
),
marks AS (
    SELECT * FROM high_level
    UNION ALL BY NAME
    SELECT * FROM called WHERE rank NOT IN (SELECT rank FROM high_level)
),
engine_calls AS (SELECT rank, ts, "end" FROM outermost UNION ALL SELECT rank, ts, "end" FROM high_level),
begun AS (
    SELECT rank, min(ts) AS ts FROM (
        FROM (SELECT rank, ts FROM engine_calls)
        UNION ALL SELECT rank, ts FROM slices
        WHERE rank IN (SELECT rank FROM engine_calls) AND side = 'host' AND cat IN ('user_annotation', 'cpu_op')
            AND (is_step(name) OR name IN (SELECT name FROM _name_roles WHERE list_has_any(roles, ['backward', 'optimizer_step']))))
    GROUP BY rank
),
other_programs AS (
    SELECT l.rank
    FROM launches AS l JOIN begun AS b ON b.rank = l.rank AND l.ts >= b.ts
    ASOF LEFT JOIN engine_calls AS c ON c.rank = l.rank AND l.ts >= c.ts
    GROUP BY l.rank HAVING 2 * coalesce(sum(l.device_end - l.device_ts) FILTER (l.ts < c."end"), 0) < sum(l.device_end - l.device_ts)
)
SELECT id, rank, track, row_number() OVER w - 1 AS iteration, phase, ts, "end",
       CASE WHEN lead(phase) OVER w IN ('decode', 'mixed') AND phase <> 'idle' THEN greatest(lead(ts) OVER w, "end") ELSE "end" END AS until,
       ts - lag("end") OVER w AS gap_before_ns,
       batch, prompt_tokens, context_tokens, generated_tokens, bucket_batch, bucket_query, bucket_blocks, blocks_used, graphs
FROM marks WHERE rank NOT IN (FROM other_programs) WINDOW w AS (PARTITION BY rank ORDER BY ts, id)
