-- One row per call to an optimizer's step, without the closure that it may run first.
--
-- If the recording ends inside the last call, as `record` does, the rest of the call is the profiler's, not the optimizer's.
--
-- needs: _optimizer_calls, slices, launches, device_ops, windows
-- empty without: _optimizer_calls
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, host track
-- column class: VARCHAR, class of the optimizer, for example AdamW
-- column ts: BIGINT, start of the optimizer's own work in ns
-- column dur: BIGINT, duration of this work on the host in ns
-- column end: BIGINT, end in ns
-- column ops: BIGINT, number of framework ops inside, at any depth
-- column launched: BIGINT, number of units of device work submitted inside
-- column loop_ns: BIGINT, time from the first to the last of its ops that compute; NULL for fused updates, and if the CPU is not the device
-- column fused_ns: BIGINT, estimated upper bound on the time that a fused update would take; NULL for fused updates, and if the CPU is not the device
WITH steps AS (
    SELECT c.id, c.rank, c.track, c.track AS lane, regexp_extract(c.name, '#(.+?)(\.step)?$', 1) AS class, c.ts,
           CASE WHEN c.ts < w.host_end THEN least(c."end", w.host_end) ELSE c."end" END AS "end"
    FROM _optimizer_calls AS c LEFT JOIN windows AS w USING (rank)
),
ops AS (
    SELECT id, track AS lane, ts, "end" FROM slices WHERE cat = 'cpu_op' AND track IN (SELECT track FROM steps)
),
calls AS (
    SELECT id, track AS lane, ts, "end", device_ops FROM launches WHERE track IN (SELECT track FROM steps)
),
inside AS (SELECT outside AS id, count(*) AS ops FROM nested_pairs(ops, steps) GROUP BY outside),
submitted AS (
    SELECT p.outside AS id, sum(c.device_ops) AS launched
    FROM nested_pairs(calls, steps) AS p JOIN calls AS c ON c.id = p.inside
    GROUP BY p.outside
),
-- Estimate for the CPU. Before the first op and after the last, a fused update takes as long as the loop does. In
-- between, memory limits the fused update: it reads the parameter, the gradient and the states once, and writes all of
-- them except the gradient. The ops of the loop show the speed of the memory: addcdiv_ reads three tensors and writes
-- one; SGD's add_ reads two tensors and writes one. add_ updates the parameter and, if there is a mul_, also the
-- momentum. Each tensor still needs an op that counts its steps, which takes as long as the shortest add_.
loops AS (
    SELECT s.id, min(d.ts) - s.ts + s."end" - max(d."end") AS around_ns,
           CASE WHEN contains(lower(s.class), 'adam') THEN 2 ELSE 1 END AS states,
           count(*) FILTER (d.name = 'aten::addcdiv_') * min(d.dur) FILTER (d.name = 'aten::add_') AS counting_ns,
           sum(d.dur) FILTER (d.name = 'aten::addcdiv_') AS quotient_ns,
           sum(d.dur) FILTER (d.name = 'aten::add_') AS sum_ns, bool_or(d.name = 'aten::mul_') AS momentum
    FROM (FROM device_ops WHERE op = id) AS d ASOF JOIN steps AS s ON s.track = d.track AND d.ts >= s.ts
    WHERE d."end" <= s."end" AND NOT contains(lower(s.class), 'fused')
    GROUP BY s.id, s.class, s.ts, s."end" HAVING NOT bool_or(starts_with(d.name, 'aten::_fused_'))
),
fused AS (
    SELECT id, around_ns, around_ns + CASE WHEN quotient_ns > 0 THEN coalesce(counting_ns, 0) + quotient_ns * (3 + 2 * states) / 4
                                WHEN momentum THEN sum_ns * 5 / 6 ELSE sum_ns END AS fused_ns
    FROM loops
)
SELECT s.id, s.rank, s.track, s.class, s.ts, s."end" - s.ts AS dur, s."end",
       coalesce(i.ops, 0) AS ops, coalesce(l.launched, 0)::BIGINT AS launched,
       CASE WHEN f.around_ns IS NOT NULL THEN greatest(s."end" - s.ts - f.around_ns, 0)::BIGINT END AS loop_ns,
       CASE WHEN f.fused_ns IS NOT NULL THEN least(f.fused_ns, s."end" - s.ts)::BIGINT END AS fused_ns
FROM steps AS s LEFT JOIN inside AS i USING (id) LEFT JOIN submitted AS l ON l.id = s.id LEFT JOIN fused AS f ON f.id = s.id
