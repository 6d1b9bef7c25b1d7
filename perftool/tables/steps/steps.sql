-- One row per step, or one for the whole recording when no step was marked or detected. Each moment counts in the first
-- column of the breakdown that applies, so the columns add up to the step. As in PyTorch's TensorBoard plugin, kernel
-- includes collectives. Together, compute, collective, copy and fill cover the same time as kernel, memcpy, memset and
-- communication, but divide it by the purpose of the device work.
--
-- needs: _step_bounds, _timeline, _mask_meanings, step_marks
-- empty without: _step_bounds
-- column rank: INTEGER, distributed rank
-- column step: INTEGER, number of the step; NULL when the recording has no steps
-- column name: VARCHAR, name of the annotation
-- column ts: BIGINT, start in ns, after the device work of the previous step
-- column dur: BIGINT, duration in ns
-- column end: BIGINT, end in ns, when the device work launched by the step is done
-- column host_ts: BIGINT, start of the annotation on the host
-- column host_end: BIGINT, end of the annotation on the host
-- column partial: BOOLEAN, whether per-step numbers exclude the step
-- column kernel: BIGINT, ns during which a kernel ran
-- column memcpy: BIGINT, ns during which a copy ran and no kernel did
-- column memset: BIGINT, ns during which a fill ran and nothing in the columns before it did
-- column communication: BIGINT, ns during which a collective ran and nothing in the columns before it did
-- column runtime: BIGINT, ns during which a runtime call ran and nothing in the columns before it did
-- column dataloader: BIGINT, ns during which data was loaded and nothing in the columns before it ran
-- column cpu_op: BIGINT, ns during which a framework op ran and nothing in the columns before it did
-- column other: BIGINT, the rest of the step
-- column compute: BIGINT, ns during which a kernel other than a collective ran
-- column collective: BIGINT, ns of collectives while nothing computed, and of calls of a process group while the device was idle
-- column copy: BIGINT, ns during which a copy ran and neither compute nor a collective did
-- column fill: BIGINT, ns during which a fill ran and neither compute, nor a collective, nor a copy did
-- column idle_runtime: BIGINT, ns of runtime calls while the device is idle; differs from runtime only if the CPU is the device
-- column idle_dataloader: BIGINT, ns of data loading while the device is idle; differs from dataloader only if the CPU is the device
-- column idle_cpu_op: BIGINT, ns of framework ops while the device is idle; differs from cpu_op only if the CPU is the device
-- column source: VARCHAR, source of the step's bounds: iteration, profiler, optimizer, annotation or copies (step_marks.source); NULL for a whole recording
-- column confidence: VARCHAR, step_marks.confidence
-- column left_out: VARCHAR, why per-step numbers exclude a partial step: incomplete (not entirely in the recording) or warm-up (the first steps, which compile or start up)
WITH
-- Steps may overlap, so time is first split at their bounds. Comparing every stretch with every step would take
-- quadratic time.
bounds AS (SELECT rank, ts FROM _step_bounds UNION SELECT rank, "end" FROM _step_bounds),
-- Group by mask, because there are few distinct masks.
parts AS (
    SELECT b.rank, b.ts, t.mask, sum(t."end" - t.ts) AS ns
    FROM _timeline AS t ASOF JOIN bounds AS b ON b.rank = t.rank AND t.ts >= b.ts GROUP BY b.rank, b.ts, t.mask
),
pieces AS (SELECT p.rank, p.ts, s.part, coalesce(s.device, s.part) AS use, p.ns FROM parts AS p JOIN _mask_meanings AS s USING (mask)),
-- Steps may overlap, so a piece may be in several steps. Each piece is compared with the last step that begins before
-- it, and with six neighbours of that step.
nonempty_steps AS (
    SELECT rank, ordinal, ts, "end", row_number() OVER (PARTITION BY rank ORDER BY ts, ordinal) AS place
    FROM _step_bounds WHERE "end" > ts
),
placed AS (
    SELECT t.*, l.place FROM pieces AS t ASOF JOIN nonempty_steps AS l ON l.rank = t.rank AND t.ts >= l.ts
),
held AS (
    SELECT p.* REPLACE (p.place + o.distance AS place) FROM placed AS p, (SELECT unnest(range(-4, 3)) AS distance) AS o
),
shares AS (
    SELECT b.rank, b.ordinal, sum(ns) FILTER (part = 'kernel') AS kernel, sum(ns) FILTER (part = 'memcpy') AS memcpy,
           sum(ns) FILTER (part = 'memset') AS memset, sum(ns) FILTER (part = 'communication') AS communication,
           sum(ns) FILTER (part = 'runtime') AS runtime, sum(ns) FILTER (part = 'dataloader') AS dataloader,
           sum(ns) FILTER (part = 'cpu_op') AS cpu_op, sum(ns) FILTER (use = 'kernel') AS compute,
           sum(ns) FILTER (use = 'communication') AS collective, sum(ns) FILTER (use = 'memcpy') AS copy,
           sum(ns) FILTER (use = 'memset') AS fill, sum(ns) FILTER (use = 'runtime') AS idle_runtime,
           sum(ns) FILTER (use = 'dataloader') AS idle_dataloader, sum(ns) FILTER (use = 'cpu_op') AS idle_cpu_op
    FROM held AS t JOIN nonempty_steps AS b ON b.rank = t.rank AND b.place = t.place AND t.ts >= b.ts AND t.ts < b."end"
    GROUP BY b.rank, b.ordinal
)
SELECT b.rank, b.step, b.name, b.ts, b."end" - b.ts AS dur, b."end", b.host_ts, b.host_end, b.partial,
       coalesce(COLUMNS(['kernel', 'memcpy', 'memset', 'communication', 'runtime', 'dataloader', 'cpu_op']), 0)
           ::BIGINT,
       (b."end" - b.ts)
       - (coalesce(kernel, 0) + coalesce(memcpy, 0) + coalesce(memset, 0) + coalesce(communication, 0)
          + coalesce(runtime, 0) + coalesce(dataloader, 0) + coalesce(cpu_op, 0))::BIGINT AS other,
       coalesce(COLUMNS(['compute', 'collective', 'copy', 'fill', 'idle_runtime', 'idle_dataloader', 'idle_cpu_op']), 0)::BIGINT,
       m.source, m.confidence, b.left_out
FROM _step_bounds AS b
LEFT JOIN shares AS s USING (rank, ordinal)
LEFT JOIN (SELECT rank, min(source) AS source, min(confidence) AS confidence FROM step_marks GROUP BY rank) AS m ON m.rank = b.rank
ORDER BY b.rank, b.ordinal
