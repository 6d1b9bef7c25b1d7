-- The ops around the longest stretch of idle time in which the recording shows nothing.
--
-- needs: _idle_totals, ops
-- empty without: _idle_totals, ops
-- column rank: INTEGER, distributed rank
-- column cause: VARCHAR, _idle_totals.name: between_ops or unknown
-- column before: VARCHAR, the last op that ends before the stretch
-- column after: VARCHAR, the first op that begins after the stretch
WITH stretches AS (FROM _idle_totals WHERE name IN ('between_ops', 'unknown'))
SELECT t.rank, t.name AS cause, arg_max(o.name, (o."end", o.id)) FILTER (o."end" <= t.ts) AS before,
       arg_min(o.name, (o.ts, o.id)) FILTER (o.ts >= t.ts + t.longest_ns) AS after
FROM stretches AS t JOIN ops AS o ON o.rank = t.rank WHERE contains(o.name, '::') GROUP BY t.rank, t.name
