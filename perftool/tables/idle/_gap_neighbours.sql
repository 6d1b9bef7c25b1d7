-- For idle time that nothing in the recording explains: the ops around the longest stretch, and the pair of ops between
-- which most of this time was spent.
--
-- needs: _idle_totals, gap_causes, ops
-- empty without: _idle_totals, ops
-- column rank: INTEGER, distributed rank
-- column cause: VARCHAR, _idle_totals.name: between_ops or unknown
-- column before: VARCHAR, the last op that ends before the longest stretch
-- column after: VARCHAR, the first op that begins after the longest stretch
-- column pair_before: VARCHAR, first op of the pair
-- column pair_after: VARCHAR, second op of the pair
-- column pair_times: BIGINT, number of stretches between the pair
-- column pair_ns: BIGINT, total time of these stretches
WITH stretches AS (SELECT rank, cause, ts, dur, "end" FROM gap_causes WHERE cause IN ('between_ops', 'unknown')),
named AS (
    SELECT o.id, o.rank, o.name, o.ts, o."end" FROM ops AS o
    WHERE o.outermost AND contains(o.name, '::') AND EXISTS (FROM stretches)
),
ends AS (SELECT rank, "end", arg_max(name, (ts, id)) AS name FROM named GROUP BY rank, "end"),
begins AS (SELECT rank, ts, arg_min(name, ("end", id)) AS name FROM named GROUP BY rank, ts),
placed AS (
    SELECT s.rank, s.cause, s.ts, s.dur, e.name AS before, b.name AS after
    FROM stretches AS s ASOF LEFT JOIN ends AS e ON e.rank = s.rank AND s.ts >= e."end"
    ASOF LEFT JOIN begins AS b ON b.rank = s.rank AND s."end" <= b.ts
),
pairs AS (
    SELECT rank, cause, before, after, count(*) AS times, sum(dur)::BIGINT AS ns FROM placed
    WHERE before IS NOT NULL AND after IS NOT NULL GROUP BY rank, cause, before, after
    QUALIFY row_number() OVER (PARTITION BY rank, cause ORDER BY ns DESC, before, after) = 1
)
SELECT t.rank, t.name AS cause, l.before, l.after, p.before AS pair_before, p.after AS pair_after, p.times AS pair_times, p.ns AS pair_ns
FROM _idle_totals AS t JOIN placed AS l ON l.rank = t.rank AND l.cause = t.name AND l.ts = t.ts AND l.dur = t.longest_ns
LEFT JOIN pairs AS p ON p.rank = t.rank AND p.cause = t.name
WHERE coalesce(l.before, l.after) IS NOT NULL
