-- One row per stretch of forward work that no backward pass follows, in the recording of a training run: an evaluation,
-- a rollout, the pass of a frozen or averaged model, or a transform of the inputs.
--
-- A matmul, convolution or attention counts if neither it nor an op inside it is differentiated. A stretch lasts from
-- the first such op to the last one before the next differentiated op, backward function or optimizer call. There are
-- no rows for a rank in which nothing is differentiated.
--
-- needs: ops, recomputed_ops, op_kinds, feeding_tracks, _differentiated, optimizer_steps, dataloader, launches
-- empty without: _differentiated
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, host track of longest_op
-- column ts: BIGINT, start of the first op in ns
-- column dur: BIGINT, duration in ns
-- column end: BIGINT, end of the last op in ns
-- column ops: BIGINT, number of ops that count
-- column op_ns: BIGINT, total duration of the ops that count
-- column graph_ns: BIGINT, the part of op_ns in ops that add functions to autograd's graph, if no backward pass runs any of these functions
-- column work_ns: BIGINT, total time of all outermost ops inside, without the time between them
-- column batches: BIGINT, number of batches fetched from data loaders inside
-- column longest_op: VARCHAR, the longest of the ops that count
-- column shapes: VARCHAR, shapes of the inputs of longest_op as JSON, when recorded
-- column device_ns: BIGINT, time from the start of the first device work that the stretch launches to the end of the last; NULL if it launches none
WITH outermost AS (
    SELECT o.rank, o.track, o.id, o.name, o.input_dims, o.ts, o."end", o.sequence, starts_with(o.name, 'autograd::engine') AS backward
    FROM ops AS o
    WHERE o.outermost AND o.track IN (SELECT track FROM feeding_tracks) AND o.rank IN (SELECT rank FROM _differentiated WHERE op IS NOT NULL)
),
works AS (
    SELECT DISTINCT o.rank, o.track, o.id, o.name, o.input_dims, o.ts, o."end"
    FROM (SELECT track, ts FROM ops WHERE name IN (SELECT name FROM op_kinds WHERE kind IN ('product', 'convolution', 'attention'))) AS w
    ASOF JOIN outermost AS o ON o.track = w.track AND w.ts >= o.ts
    WHERE w.ts < o."end" AND NOT o.backward
),
-- Compiled code is one differentiated op; the ops inside it, and inside its backward function, have no numbers.
differentiated AS (
    SELECT DISTINCT op_track AS track, op_ts AS ts, op_end AS "end" FROM _differentiated WHERE op IS NOT NULL
    UNION SELECT track, ts, "end" FROM _differentiated
),
derived AS (
    SELECT DISTINCT o.id FROM (SELECT op_track AS track, op_ts AS ts FROM _differentiated WHERE op IS NOT NULL) AS d
    ASOF JOIN outermost AS o ON o.track = d.track AND d.ts >= o.ts
    WHERE d.ts < o."end"
    UNION
    SELECT w.id FROM works AS w ASOF JOIN differentiated AS d ON d.track = w.track AND w.ts >= d.ts WHERE w.ts < d."end"
),
-- An op has the number that its first function would get, even if it adds none. It added functions if the next op has a
-- higher number. A backward pass in between may itself add functions, so an op right before a backward pass does not
-- count.
ranges AS (
    SELECT id, rank, sequence AS first, lead(CASE WHEN NOT backward THEN sequence END) OVER (PARTITION BY track ORDER BY ts, id) AS next
    FROM outermost WHERE sequence >= 0 OR backward
),
graphs AS (
    SELECT r.id FROM ranges AS r ASOF LEFT JOIN (SELECT DISTINCT rank, sequence FROM ops WHERE sequence >= 0 AND starts_with(name, 'autograd::engine')) AS b
        ON b.rank = r.rank AND r.first <= b.sequence
    WHERE r.next > r.first AND (b.sequence IS NULL OR b.sequence >= r.next)
        AND r.id NOT IN (SELECT op FROM recomputed_ops)
),
events AS (
    SELECT w.rank, w.ts, w."end", d.id IS NULL AS alone, w.track, w.name, w.input_dims, g.id IS NOT NULL AS graph
    FROM works AS w LEFT JOIN derived AS d USING (id) LEFT JOIN graphs AS g USING (id) ASOF LEFT JOIN optimizer_steps AS u ON u.track = w.track AND w.ts >= u.ts
    WHERE u.ts IS NULL OR w.ts >= u."end"
    UNION ALL SELECT rank, ts, "end", false, NULL, NULL, NULL, false FROM outermost WHERE backward
    UNION ALL SELECT rank, ts, "end", false, NULL, NULL, NULL, false FROM optimizer_steps
),
numbered AS (
    SELECT *, count(*) FILTER (NOT alone) OVER (PARTITION BY rank ORDER BY ts, "end" DESC, alone) AS number FROM events
),
stretches AS (
    SELECT rank, min(ts) AS ts, max("end") AS "end", count(*) AS ops, sum("end" - ts)::BIGINT AS op_ns,
           coalesce(sum("end" - ts) FILTER (graph), 0)::BIGINT AS graph_ns,
           arg_min({'name': name, 'dims': input_dims, 'track': track}, (ts - "end", ts, name)) AS longest
    FROM numbered WHERE alone GROUP BY rank, number
),
worked AS (
    SELECT s.rank, s.ts, sum(o."end" - o.ts)::BIGINT AS ns FROM (FROM outermost WHERE rank IN (SELECT rank FROM stretches)) AS o
    ASOF JOIN stretches AS s ON s.rank = o.rank AND o.ts >= s.ts
    WHERE o.ts < s."end" GROUP BY s.rank, s.ts
),
launched AS (
    SELECT s.rank, s.ts, min(l.device_ts) AS device_ts, max(l.device_end) AS device_end
    FROM (FROM launches WHERE rank IN (SELECT rank FROM stretches)) AS l
    ASOF JOIN stretches AS s ON s.rank = l.rank AND l.ts >= s.ts WHERE l.ts < s."end" AND l.device_ops > 0 GROUP BY s.rank, s.ts
),
fetched AS (
    SELECT s.rank, s.ts, count(*) AS batches FROM dataloader AS d ASOF JOIN stretches AS s ON s.rank = d.rank AND d.ts >= s.ts
    WHERE d.ts < s."end" GROUP BY s.rank, s.ts
)
SELECT s.rank, s.longest.track AS track, s.ts, s."end" - s.ts AS dur, s."end", s.ops, s.op_ns, s.graph_ns, w.ns AS work_ns, coalesce(f.batches, 0) AS batches,
       s.longest.name AS longest_op, s.longest.dims AS shapes, l.device_end - l.device_ts AS device_ns
FROM stretches AS s JOIN worked AS w USING (rank, ts) LEFT JOIN fetched AS f USING (rank, ts) LEFT JOIN launched AS l USING (rank, ts)
ORDER BY s.rank, s.ts
