-- Every complete event with its category, before nesting. The table is dropped once slices exist.
--
-- needs: tracks, _pairs, _categories, _vocabulary
-- empty without: tracks
-- column id: BIGINT, row of the event, or of its begin event, in the raw table
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, tracks.id
-- column side: VARCHAR, tracks.side
-- column name: VARCHAR, the event's name
-- column cat: VARCHAR, normalised category
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
WITH complete AS (
    SELECT rowid AS id, rank, pid, tid, name, cat, ts, ts + dur AS "end"
    FROM raw WHERE ph = 'X' AND ts IS NOT NULL AND dur IS NOT NULL
    UNION ALL
    SELECT p.id, r.rank, r.pid, r.tid, r.name, r.cat, r.ts, p."end"
    FROM _pairs AS p JOIN raw AS r ON r.rowid = p.id
),
spellings AS (
    SELECT cat AS spelled, c.* FROM (SELECT DISTINCT cat FROM raw) JOIN _categories AS c ON c.category = lower(cat)
),
-- If the category does not distinguish copies and fills from other work, the name does.
deciding_names AS (
    SELECT n.name, min(v.role) AS kind
    FROM (SELECT DISTINCT name FROM raw WHERE cat IN (SELECT spelled FROM spellings WHERE by_name)) AS n
    JOIN _vocabulary AS v ON v.subject = 'event' AND lower(n.name) GLOB v.pattern
    GROUP BY n.name
)
SELECT e.id, e.rank, t.id AS track, t.side, e.name::event_name AS name,
       (CASE WHEN t.side = 'device' AND c.by_name AND n.kind IS NOT NULL THEN n.kind
             WHEN t.side = 'device' AND c.side = 'lane'
                 THEN CASE WHEN t.engine IN ('DMA', 'PDMA') THEN 'memcpy' ELSE 'kernel' END
             ELSE coalesce(c.kind, lower(e.cat), '') END)::event_category AS cat,
       e.ts, e."end"
FROM complete AS e
JOIN (SELECT * REPLACE (side::event_side AS side) FROM tracks) AS t ON t.rank = e.rank AND t.pid = coalesce(e.pid, '') AND t.tid = coalesce(e.tid, '')
LEFT JOIN spellings AS c ON c.spelled = e.cat
LEFT JOIN deciding_names AS n ON n.name = e.name AND c.by_name
-- Device events with impossible lengths stay here; _device_work sets them aside.
WHERE e.name IS NOT NULL AND (t.side = 'device' OR is_length(e."end" - e.ts))
