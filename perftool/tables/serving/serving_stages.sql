-- One row per stage of an iteration that the recording shows, from vLLM's scopes (VLLM_CUSTOM_SCOPES_FOR_PROFILING),
-- the Python functions of vLLM and SGLang (with_stack=True), or the slices of vLLM's high-level profiler on Gaudi. A
-- nested stage counts as part of the outer stage.
--
-- needs: _iteration_marks, slices, _name_roles
-- empty without: _iteration_marks
-- column rank: INTEGER, distributed rank
-- column iteration: BIGINT, serving_iterations.iteration; schedule, prepare and wait belong to the following call to the model
-- column stage: VARCHAR, schedule, prepare, forward, logits, sample, post (processing the tokens), send (the result to the engine), detokenize, or wait (for the next batch or request)
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
-- column dur: BIGINT, duration in ns
WITH stages AS (
    SELECT name, cat, unnest(list_filter(roles, lambda role: starts_with(role, 'serving_')))[9:] AS stage FROM _name_roles
    WHERE list_has_any(roles, ['serving_schedule', 'serving_prepare', 'serving_forward', 'serving_logits', 'serving_sample', 'serving_post', 'serving_send', 'serving_detokenize'])
    UNION ALL
    SELECT name, cat, 'wait' FROM _name_roles WHERE list_has_any(roles, ['queue_wait', 'pipe_wait', 'lock_wait', 'sleep'])
),
lanes AS (SELECT DISTINCT rank, track FROM _iteration_marks),
shown AS (
    SELECT s.rank, s.track, t.stage, s.ts, s."end"
    FROM slices AS s JOIN stages AS t ON t.name = s.name AND t.cat = s.cat JOIN lanes AS l ON l.track = s.track
    WHERE s.side = 'host'
    UNION ALL
    SELECT s.rank, s.track, CASE WHEN starts_with(s.name, 'prepare_') THEN 'prepare' WHEN starts_with(s.name, 'model_') THEN 'forward'
                                   WHEN s.name = 'sampler' THEN 'sample' WHEN s.name = 'sampler_postprocessing' THEN 'post' ELSE 'logits' END,
           s.ts, s."end"
    FROM slices AS s JOIN lanes AS l ON l.track = s.track
    WHERE s.cat = '' AND (s.name IN ('prepare_input_tensors', 'prepare_input_encoders', 'sampler', 'sampler_postprocessing', 'model_executable')
                          OR starts_with(s.name, 'model_forward_bs') OR starts_with(s.name, 'compute_logits'))
),
enclosed AS (
    SELECT *, max("end") OVER (PARTITION BY track ORDER BY ts, "end" DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach
    FROM shown
),
kept AS (SELECT * EXCLUDE (reach) FROM enclosed WHERE reach IS NULL OR ts >= reach)
SELECT k.rank, CASE WHEN k.stage IN ('schedule', 'prepare', 'wait') AND (b.iteration IS NULL OR k.ts >= b."end")
                    THEN a.iteration ELSE b.iteration END AS iteration, k.stage, k.ts, k."end", k."end" - k.ts AS dur
FROM kept AS k
ASOF LEFT JOIN _iteration_marks AS b ON b.rank = k.rank AND k.ts >= b.ts
ASOF LEFT JOIN _iteration_marks AS a ON a.rank = k.rank AND k.ts <= a.ts
WHERE (CASE WHEN k.stage IN ('schedule', 'prepare', 'wait') AND (b.iteration IS NULL OR k.ts >= b."end")
            THEN a.iteration ELSE b.iteration END) IS NOT NULL
ORDER BY k.rank, k.ts
