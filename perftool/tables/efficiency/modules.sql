-- Device time by module of the model (torch.nn.Module), forward and backward. There is one row per place in the
-- hierarchy of modules (equal layers share a place), and one per rank for work outside modules.
--
-- Work belongs to the modules around its launch. Work of a backward function belongs to the modules around the op that
-- it differentiates; both have the same sequence number. Backward work of ops from before the recording is left out, as
-- are modules with less than 0.1 % of the rank's work.
--
-- absent: the trace has no modules (with_stack=True records them), or no device work
-- needs: device_ops, windows, slices, roles, ops, _differentiated
-- empty without: device_ops, roles.role=module
-- column rank: INTEGER, distributed rank
-- column path: VARCHAR, classes of the modules from the outermost to this one, joined by ' > '; NULL for work outside modules
-- column module: VARCHAR, class of the module
-- column depth: INTEGER, number of modules in the path; 0 for work outside modules
-- column modules: BIGINT, number of modules at this place
-- column calls: BIGINT, number of calls to these modules
-- column forward_ns: BIGINT, time of the forward work that these modules and their submodules launched
-- column backward_ns: BIGINT, time of their backward work, including recomputation by checkpointing
-- column own_ns: BIGINT, the part of forward_ns and backward_ns outside submodules
-- column share: DOUBLE, share of the rank's device time in the window
WITH names AS (
    SELECT name, cat, cut_text(class, 100) AS class
    FROM (SELECT *, regexp_replace(name::VARCHAR, '^nn\.Module: |_\d+$', '', 'g') AS class FROM roles WHERE role = 'module')
),
calls AS (
    SELECT s.id, s.rank, s.track AS lane, s.ts, s."end", s.name, n.class
    FROM slices AS s JOIN names AS n ON n.name = s.name AND n.cat = s.cat
    WHERE s.side = 'host' AND s."end" >= s.ts
),
spans AS (SELECT id, lane, ts, "end" FROM calls),
around AS (
    SELECT p.inside AS id, list(o.class ORDER BY o.ts, o."end" DESC, o.id) AS path,
           first(o.name ORDER BY o.ts, o."end" DESC, o.id) AS outermost
    FROM nested_pairs(spans, spans) AS p JOIN calls AS o ON o.id = p.outside GROUP BY p.inside
),
-- Checkpointing calls a module again in the backward pass, but not the modules around it, so these are taken from
-- another call.
known AS (
    SELECT c.rank, c.name, arg_min(a.path[:-2], (c.ts, c.id)) AS path
    FROM around AS a JOIN calls AS c USING (id) WHERE len(a.path) > 1 GROUP BY c.rank, c.name
),
paths AS (
    SELECT c.id, c.rank, c.name, list_concat(coalesce(k.path, []), a.path) AS path
    FROM around AS a JOIN calls AS c USING (id) LEFT JOIN known AS k ON k.rank = c.rank AND k.name = a.outermost
),
launched AS (
    SELECT s.id, s.rank, s.track AS lane, s.ts, s."end", sum(least(d."end", w."end") - greatest(d.ts, w.ts))::BIGINT AS ns
    FROM device_ops AS d JOIN windows AS w ON w.rank = d.rank AND d.ts < w."end" AND d."end" > w.ts
    JOIN slices AS s ON s.id = coalesce(d.launch, d.op, d.id)
    WHERE d.valid AND d.kind <> 'wait' GROUP BY ALL
),
functions AS (SELECT function AS id, rank, track AS lane, ts, "end" FROM _differentiated),
inside_functions AS (
    SELECT p.inside AS id, arg_max(f.id, (f.ts, f.id)) AS function
    FROM nested_pairs(launched, functions) AS p JOIN functions AS f ON f.id = p.outside GROUP BY p.inside
),
differentiated AS (
    SELECT function, op AS id, op_track AS lane, op_ts AS ts, op_end AS "end" FROM _differentiated WHERE op IS NOT NULL
),
-- Sequence numbers grow, so functions with a smaller number than every op differentiate ops from before the recording.
earliest AS (
    SELECT d.rank, min(o.sequence) AS sequence FROM _differentiated AS d JOIN ops AS o ON o.id = d.op GROUP BY d.rank
),
unknown AS (
    SELECT d.function AS id FROM _differentiated AS d JOIN ops AS o ON o.id = d.function JOIN earliest AS e ON e.rank = d.rank
    WHERE d.op IS NULL AND o.sequence < e.sequence
),
points AS (SELECT id, lane, ts, "end" FROM launched UNION SELECT id, lane, ts, "end" FROM differentiated),
innermost AS (
    SELECT p.inside AS id, arg_max(c.id, (c.ts, -c."end", c.id)) AS call
    FROM nested_pairs(points, spans) AS p JOIN calls AS c ON c.id = p.outside GROUP BY p.inside
),
-- Checkpointing calls a module again inside a backward function. A module around a backward function only starts the
-- backward pass, for example because it trains another module.
placed AS (
    SELECT l.rank, coalesce(p.path, []) AS path, sum(l.ns) FILTER (f.id IS NULL) AS forward_ns, sum(l.ns) FILTER (f.id IS NOT NULL) AS backward_ns
    FROM launched AS l LEFT JOIN inside_functions AS f USING (id) LEFT JOIN functions AS u ON u.id = f.function
    LEFT JOIN differentiated AS d USING (function)
    LEFT JOIN innermost AS i ON i.id = l.id LEFT JOIN calls AS c ON c.id = i.call LEFT JOIN innermost AS b ON b.id = d.id
    LEFT JOIN unknown AS x ON x.id = f.function
    LEFT JOIN paths AS p ON p.id = CASE WHEN c.ts < u.ts THEN coalesce(b.call, i.call) ELSE coalesce(i.call, b.call) END
    WHERE x.id IS NULL OR p.path IS NOT NULL GROUP BY l.rank, coalesce(p.path, [])
),
totals AS (SELECT rank, sum(coalesce(forward_ns, 0) + coalesce(backward_ns, 0)) AS ns FROM placed GROUP BY rank),
-- The work of a place also counts for the places that contain it.
summed AS (
    SELECT rank, path[:depth] AS path, sum(forward_ns) AS forward_ns, sum(backward_ns) AS backward_ns,
           sum(coalesce(forward_ns, 0) + coalesce(backward_ns, 0)) FILTER (depth = len(path)) AS own_ns
    FROM (SELECT *, unnest(range(least(len(path), 1), len(path) + 1)) AS depth FROM placed) GROUP BY rank, path[:depth]
),
counted AS (SELECT rank, path, count(DISTINCT name) AS modules, count(*) AS calls FROM paths GROUP BY rank, path)
SELECT s.rank, nullif(array_to_string(s.path, ' > '), '') AS path, s.path[-1] AS module, len(s.path)::INTEGER AS depth,
       coalesce(c.modules, 0) AS modules, coalesce(c.calls, 0) AS calls, coalesce(s.forward_ns, 0)::BIGINT AS forward_ns,
       coalesce(s.backward_ns, 0)::BIGINT AS backward_ns, coalesce(s.own_ns, 0)::BIGINT AS own_ns,
       (coalesce(s.forward_ns, 0) + coalesce(s.backward_ns, 0)) / t.ns AS share
FROM summed AS s JOIN totals AS t ON t.rank = s.rank LEFT JOIN counted AS c ON c.rank = s.rank AND c.path = s.path
WHERE coalesce(s.forward_ns, 0) + coalesce(s.backward_ns, 0) >= t.ns / 1000 AND (len(s.path) > 0 OR s.rank IN (SELECT rank FROM calls))
ORDER BY s.rank, s.path
