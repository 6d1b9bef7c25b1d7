-- One row per rank and change to the program that `record` tried on its models, if these take most of a step.
--
-- needs: trials, machines
-- empty without: trials
-- column rank: INTEGER, distributed rank
-- column change: VARCHAR, the change, as the columns of trials are named, without _ns
-- column model: VARCHAR, class of the model whose calls take the most time
-- column base_ns: BIGINT, time of all calls to models in one step, and of their backward passes, as they are, in ns
-- column changed_ns: BIGINT, the same with the change, where it applies and does not fail
-- column step_ns: BIGINT, time of a step without the profiler, in ns
-- column saved_ratio: DOUBLE, the time that the change saves, as a share of a step without the profiler
WITH tried AS (
    UNPIVOT trials ON bf16_ns, bf16_dense_ns, channels_last_ns, bf16_channels_last_ns, kept_memory_ns
    INTO NAME change VALUE ns
),
models AS (
    SELECT t.rank, arg_max(t.path, (t.calls::HUGEINT * t.base_ns, t.path)) AS model, sum(t.calls::HUGEINT * t.base_ns) AS base_ns,
           greatest(sum(t.calls::HUGEINT * t.base_ns), max(coalesce(m.quiet_step_ns, m.step_ns))) AS step_ns
    FROM trials AS t JOIN machines AS m USING (rank) GROUP BY t.rank
),
saved AS (
    SELECT rank, replace(change, '_ns', '') AS change, sum(calls::HUGEINT * (base_ns - ns)) AS ns FROM tried GROUP BY ALL
)
SELECT s.rank, s.change, m.model, m.base_ns::BIGINT AS base_ns, (m.base_ns - s.ns)::BIGINT AS changed_ns,
       m.step_ns::BIGINT AS step_ns, s.ns / m.step_ns AS saved_ratio
FROM saved AS s JOIN models AS m USING (rank)
WHERE 2 * m.base_ns > m.step_ns
