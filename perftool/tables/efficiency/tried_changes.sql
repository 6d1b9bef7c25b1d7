-- One row per rank and change to the program that `record` tried on its models, if these take most of a step.
--
-- The times of the models are CPU times if PyTorch uses one thread. Then the step is also measured by its CPU time, plus
-- its share of waiting in the recorded steps, for example for a core that the program's own loader workers use. Other
-- processes make the wall time longer, but not the CPU time.
--
-- needs: trials, machines, memory_faults, run_kinds
-- empty without: trials
-- column rank: INTEGER, distributed rank
-- column change: VARCHAR, the change, as the columns of trials are named, without _ns
-- column model: VARCHAR, class of the model whose calls take the most time
-- column backward: BOOLEAN, whether the calls to this model have a backward pass
-- column described: VARCHAR, the calls that were tried, in words: up to three models, the one that takes the most time first
-- column base_ns: BIGINT, time of all calls to models in one step and of their backward passes, unchanged, in ns
-- column changed_ns: BIGINT, the same with the change, where it applies and does not fail
-- column step_ns: BIGINT, time of a step without the profiler and other processes, in ns
-- column saved_ratio: DOUBLE, the time that the change saves, as a share of a step without the profiler
WITH tried AS (
    UNPIVOT trials ON bf16_ns, bf16_dense_ns, channels_last_ns, bf16_channels_last_ns, bf16_weights_ns
    INTO NAME change VALUE ns
),
-- The profiler makes no step shorter. If the step before the recording took more CPU time, it was disturbed.
quickest AS (
    SELECT rank, min(process_ns / steps) AS step_ns, bool_and(process_ns > 0) AS known FROM memory_faults
    GROUP BY rank HAVING NOT bool_and(profiled)
),
steps AS (
    SELECT m.rank,
           CASE WHEN m.torch_threads = 1 AND f.known AND m.process_ns > 0
                THEN f.step_ns * greatest(1, (m.wall_ns - greatest(0, coalesce(m.delay_ns - coalesce(m.children_ns / m.cores, 0), 0))) / m.process_ns)
                ELSE coalesce(m.quiet_step_ns, m.step_ns) END AS ns
    FROM machines AS m LEFT JOIN quickest AS f USING (rank)
),
listed AS (
    SELECT rank, list(path ORDER BY ns DESC, path) AS paths
    FROM (SELECT rank, path, sum(calls::HUGEINT * base_ns) AS ns FROM trials GROUP BY ALL) GROUP BY rank
),
models AS (
    SELECT t.rank, arg_max(coalesce(t.backward, t.bf16_weights_ns IS NULL AND k.kind IS DISTINCT FROM 'inference'), (t.calls::HUGEINT * t.base_ns, t.path, t.backward)) AS backward, sum(t.calls::HUGEINT * t.base_ns) AS base_ns,
           greatest(sum(t.calls::HUGEINT * t.base_ns), max(s.ns)) AS step_ns
    FROM trials AS t JOIN steps AS s USING (rank) LEFT JOIN run_kinds AS k USING (rank) GROUP BY t.rank
),
saved AS (
    SELECT rank, replace(change, '_ns', '') AS change, sum(calls::HUGEINT * (base_ns - ns)) AS ns FROM tried GROUP BY ALL
)
SELECT s.rank, s.change, l.paths[1] AS model, m.backward,
       CASE WHEN len(l.paths) = 1 THEN 'a call to ' || model || CASE WHEN m.backward THEN ' and its backward pass' ELSE '' END
            ELSE 'calls to ' || CASE WHEN len(l.paths) = 2 THEN l.paths[1] || ' and ' || l.paths[2] ELSE array_to_string(l.paths[:3], ', ') END || CASE WHEN len(l.paths) > 3 THEN ' and ' || len(l.paths) - 3 || ' more' ELSE '' END
                || CASE WHEN m.backward THEN ', with their backward passes,' ELSE '' END END AS described, m.base_ns::BIGINT AS base_ns, (m.base_ns - s.ns)::BIGINT AS changed_ns,
       m.step_ns::BIGINT AS step_ns, s.ns / m.step_ns AS saved_ratio
FROM saved AS s JOIN models AS m USING (rank) JOIN listed AS l USING (rank)
WHERE 2 * m.base_ns > m.step_ns
