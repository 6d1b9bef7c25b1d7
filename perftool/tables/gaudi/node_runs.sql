-- Gaudi: one row per run of a node, over all its lanes, in the whole recording.
--
-- An execution ends when no lane works on the node and one of these follows: other work on that engine, work of another
-- launch, or a lane that already ran the node. An execution is split into runs at times when no lane works and the
-- number of activations is a multiple of the cores; in the only public recording, of a Gaudi 3, the result agrees with
-- Intel's analyzer. Only traces of a Gaudi 3 show cores; on other devices, an execution is one run.
--
-- Where no trace shows the work, the runs come from Intel's trace analyzer, which does not state the recipe.
--
-- In a simulated trace each engine has only one lane, so the lanes of a node are unknown.
--
-- needs: _node_work, device_ops, tracks, _vocabulary, analyzed_nodes, inputs, _issues
-- empty without: _node_work or analyzed_nodes
-- column rank: INTEGER, distributed rank
-- column graph: BIGINT, number of the recipe in the run; recipes may share an id
-- column recipe: BIGINT, id of the recipe
-- column recipe_name: VARCHAR, name of the recipe
-- column node: VARCHAR, name of the node in the compiled graph
-- column node_id: BIGINT, number of the node in its graph
-- column engine: VARCHAR, MME, TPC, DMA, NIC ...
-- column op: VARCHAR, operation of the node
-- column dtype: VARCHAR, data type, as the trace writes it
-- column run: BIGINT, number of the run, from 1
-- column execution: BIGINT, number of the node's execution that the run belongs to, from 1
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, from the run's first start to its last end, in ns
-- column end: BIGINT, end in ns
-- column active_ns: BIGINT, time while any lane works on the run
-- column exposed_ns: BIGINT, the part of active_ns that is not hidden behind another compute engine: for the MME, while the TPC is idle; for the TPC, while the MME is idle; for other engines, while both are idle
-- column activations: BIGINT, number of pieces of work
-- column lanes: BIGINT, number of lanes that worked on the run; NULL if unknown
-- column node_lanes: BIGINT, number of lanes that worked on the execution; NULL if unknown
-- column min_engine_ns: BIGINT, busy time of the least busy lane
-- column max_engine_ns: BIGINT, busy time of the busiest lane
-- column avg_engine_ns: DOUBLE, mean busy time of a lane
-- column parallel_share: DOUBLE, active_ns / dur
WITH simulated AS (SELECT DISTINCT i.rank FROM inputs AS i JOIN _issues AS s USING (path) WHERE i.kind = 'trace' AND s.kind = 'simulated'),
cores AS (
    SELECT t.rank, count(DISTINCT split_part(t.thread, ' ', 1)) AS cores
    FROM tracks AS t JOIN _vocabulary AS v ON v.subject = 'thread' AND v.role = 'core' AND lower(t.thread) GLOB v.pattern
    GROUP BY t.rank
),
placed AS (
    SELECT id, rank, track, engine, launch, ts, "end", hash(graph, engine, node, node_id) AS key,
           row_number() OVER (PARTITION BY rank, engine ORDER BY ts, "end", id) AS place
    FROM _node_work
),
turned AS (
    SELECT *, row_number() OVER (PARTITION BY key, track ORDER BY place) AS turn, lag(place) OVER k AS previous, lag(launch) OVER k AS previous_launch,
           max("end") OVER (k ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach
    FROM placed WINDOW k AS (PARTITION BY key ORDER BY place)
),
lasted AS (
    SELECT * EXCLUDE (launch, previous_launch), launch IS DISTINCT FROM previous_launch AS relaunched,
           max(turn) OVER (PARTITION BY key ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS last_turn
    FROM turned
),
rested AS (
    SELECT * EXCLUDE (turn, last_turn, relaunched), reach IS NULL OR ts > reach AS idle,
           previous IS NULL OR (idle AND (place > previous + 1 OR relaunched OR turn > last_turn)) AS separate
    FROM lasted
),
parts AS (SELECT * EXCLUDE (previous), count_if(separate) OVER (PARTITION BY key ORDER BY place) AS part FROM rested),
rounds AS (
    SELECT p.* EXCLUDE (separate, idle),
           separate OR (idle AND coalesce((row_number() OVER (PARTITION BY key, part ORDER BY place) - 1) % c.cores = 0, false)) AS begins
    FROM parts AS p LEFT JOIN cores AS c USING (rank)
),
work AS (
    SELECT * EXCLUDE (begins), count_if(begins) OVER (PARTITION BY key ORDER BY place) AS cut,
           CASE engine WHEN 'MME' THEN 1 WHEN 'TPC' THEN 2 ELSE 3 END AS class
    FROM rounds
),
-- The engines that can hide work: for the MME (class 1) and the TPCs (2), the other of the two; for all other engines
-- (3), both.
compute AS (
    SELECT rank, unnest(CASE engine WHEN 'TPC' THEN [1, 3] ELSE [2, 3] END) AS class, ts, "end"
    FROM device_ops WHERE valid AND engine IN ('MME', 'TPC')
),
hides AS (
    SELECT rank, class, ts, "end",
           coalesce(sum("end" - ts) OVER (PARTITION BY rank, class ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
    FROM interval_union(compute)
),
pieces AS (
    SELECT key, cut, rank, class, greatest(ts, coalesce(reach, ts)) AS ts, "end" FROM work WHERE reach IS NULL OR "end" > reach
),
hidden AS (
    SELECT p.key, p.cut,
           sum(p."end" - p.ts)::BIGINT AS active_ns,
           sum(coalesce(u.before + least(p."end", u."end") - u.ts, 0) - coalesce(f.before + least(p.ts, f."end") - f.ts, 0))::BIGINT AS hidden_ns
    FROM pieces AS p
    ASOF LEFT JOIN hides AS f ON f.rank = p.rank AND f.class = p.class AND p.ts >= f.ts
    ASOF LEFT JOIN hides AS u ON u.rank = p.rank AND u.class = p.class AND p."end" >= u.ts
    GROUP BY p.key, p.cut
),
lanes AS (SELECT key, cut, track, sum("end" - ts)::BIGINT AS ns FROM work GROUP BY key, cut, track),
shares AS (
    SELECT key, cut, count(*) AS lanes, min(ns) AS min_engine_ns, max(ns) AS max_engine_ns, avg(ns) AS avg_engine_ns
    FROM lanes GROUP BY key, cut
),
neighbours AS (SELECT key, part, count(DISTINCT track) AS node_lanes FROM work GROUP BY key, part),
runs AS (
    SELECT key, cut, min(part) AS part, min(ts) AS ts, max("end") AS "end", count(*) AS activations, arg_min(id, (ts, id)) AS first
    FROM work GROUP BY key, cut
)
SELECT f.rank, f.graph, f.recipe, f.recipe_name, f.node, f.node_id, f.engine, f.op, f.dtype,
       row_number() OVER (PARTITION BY r.key ORDER BY r.ts) AS run, r.part AS execution, r.ts, r."end" - r.ts AS dur, r."end", h.active_ns,
       h.active_ns - h.hidden_ns AS exposed_ns, r.activations, CASE WHEN m.rank IS NULL THEN s.lanes END AS lanes,
       CASE WHEN m.rank IS NULL THEN n.node_lanes END AS node_lanes, s.min_engine_ns, s.max_engine_ns, s.avg_engine_ns,
       h.active_ns / (r."end" - r.ts) AS parallel_share
FROM runs AS r JOIN _node_work AS f ON f.id = r.first
JOIN hidden AS h USING (key, cut) JOIN shares AS s USING (key, cut) JOIN neighbours AS n USING (key, part)
LEFT JOIN simulated AS m ON m.rank = f.rank
UNION ALL
SELECT coalesce(rank, (SELECT min(rank) FROM tracks), 0), NULL, NULL, NULL, node, node_id, engine, op, dtype, run, run, ts, dur, ts + dur,
       active_ns, exposed_ns, activations, lanes, CASE WHEN count(*) OVER (PARTITION BY rank, node, engine) = 1 THEN lanes END, min_engine_ns, max_engine_ns, avg_engine_ns, active_ns / nullif(dur, 0)
FROM analyzed_nodes WHERE NOT EXISTS (FROM _node_work)
ORDER BY rank, ts, engine, node, run
