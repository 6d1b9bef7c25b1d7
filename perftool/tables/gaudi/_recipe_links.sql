-- Gaudi: the launch of each unit of device work. The trace names the recipe on both sides but does not link them.
--
-- A recipe's runs follow its launches in order. If there are as many runs as launches, they are paired by position.
-- Otherwise, some are missing, at the start or end of the recording or because the profiler dropped them. In that case,
-- runs and launches are paired from the end (launches by their sequence numbers), because all work is done when a
-- recording ends. If that is impossible, work belongs to the last launch before it.
--
-- needs: _device_work, _recipe_calls, _recipe_parts
-- empty without: _recipe_calls, _recipe_parts
-- column rank: INTEGER, distributed rank
-- column launch: BIGINT, host call (slices.id)
-- column work: BIGINT, unit of device work (slices.id)
WITH calls AS (
    SELECT c.id, c.rank, c.ts, p.graph, row_number() OVER (PARTITION BY p.graph ORDER BY c.ts, c.id) AS ordinal,
           max(c.seq) OVER (PARTITION BY c.rank) - c.seq AS back
    FROM _recipe_calls AS c JOIN _recipe_parts AS p USING (id)
),
work AS (
    SELECT w.id, w.rank, w.ts, p.graph, lag(p.graph) OVER (PARTITION BY w.rank ORDER BY w.ts, w.id) IS DISTINCT FROM p.graph AS begins
    FROM _device_work AS w JOIN _recipe_parts AS p USING (id) WHERE w.set_aside IS NULL
),
-- A run of a recipe begins when the device switches to it. Back-to-back runs of one recipe count as one.
placed AS (
    SELECT id, rank, ts, graph,
           sum(begins::INTEGER) OVER (PARTITION BY graph ORDER BY ts, id ROWS UNBOUNDED PRECEDING) AS ordinal,
           sum(begins::INTEGER) OVER (PARTITION BY rank ORDER BY ts, id ROWS UNBOUNDED PRECEDING) AS place
    FROM work
),
runs AS (SELECT *, max(place) OVER (PARTITION BY rank) - place AS back FROM placed),
counts AS (
    SELECT graph, c.n = r.n AS paired
    FROM (SELECT graph, count(*) AS n FROM calls GROUP BY graph) AS c
    JOIN (SELECT graph, max(ordinal) AS n FROM runs GROUP BY graph) AS r USING (graph)
),
-- Ranks on which counting from the end pairs every launch with a run of the same recipe that starts no earlier than the
-- launch.
aligned AS (
    SELECT c.rank
    FROM calls AS c LEFT JOIN (SELECT rank, back, min(graph) AS graph, min(ts) AS ts FROM runs GROUP BY rank, back) AS r
        ON r.rank = c.rank AND r.back = c.back
    GROUP BY c.rank
    HAVING bool_and(coalesce(r.graph = c.graph AND r.ts + clock_slack_ns() >= c.ts, false))
),
rest AS (SELECT * FROM runs SEMI JOIN (SELECT * FROM counts WHERE NOT paired) USING (graph))
SELECT r.rank, c.id AS launch, r.id AS work
FROM runs AS r
JOIN counts AS n ON n.graph = r.graph AND n.paired
JOIN calls AS c ON c.graph = r.graph AND c.ordinal = r.ordinal
UNION ALL
SELECT r.rank, c.id, r.id
FROM (SELECT * FROM rest SEMI JOIN aligned USING (rank)) AS r JOIN calls AS c ON c.rank = r.rank AND c.back = r.back
UNION ALL
SELECT r.rank, c.id, r.id
FROM (SELECT * FROM rest ANTI JOIN aligned USING (rank)) AS r
ASOF JOIN calls AS c ON c.graph = r.graph AND r.ts + clock_slack_ns() >= c.ts
