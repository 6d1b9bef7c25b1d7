-- One row per start of a data loader's workers. A loader without persistent_workers=True starts them for each pass over
-- the data.
--
-- A new iterator draws a random number for its workers and then starts them. The next op belongs to the sampler or to
-- the first fetch. If an iterator keeps its workers, only the sampler draws random numbers, and the next op follows
-- within microseconds. Starting a process takes more than a millisecond.
--
-- needs: slices, dataloader
-- empty without: dataloader
-- column rank: INTEGER, distributed rank
-- column name: VARCHAR, the iterator (dataloader.name)
-- column fetch: BIGINT, the first fetch after the start (dataloader.id)
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, time to start the workers in ns
-- column first_ns: BIGINT, duration of the first fetch
-- column last_ns: BIGINT, duration of the previous fetch of this iterator, which ends the workers after a complete pass; NULL if there is none
WITH fetches AS (SELECT id, track, rank, name, ts, dur, "end" FROM dataloader WHERE workers),
draws AS (
    SELECT track, ts, "end" FROM slices
    WHERE cat = 'cpu_op' AND name = 'aten::random_' AND outermost AND track IN (SELECT track FROM fetches)
),
others AS (
    SELECT track, ts FROM slices
    WHERE cat = 'cpu_op' AND name <> 'aten::item' AND outermost AND track IN (SELECT track FROM draws)
),
followed AS (
    SELECT d.track, d.ts, d."end", o.ts AS next FROM draws AS d ASOF LEFT JOIN others AS o ON o.track = d.track AND d."end" <= o.ts
),
begun AS (
    SELECT f.rank, f.track, f.name, f.id AS fetch, d."end" AS ts, least(d.next, f.ts) AS "end", f.dur AS first_ns, d.ts AS drawn
    FROM followed AS d ASOF JOIN fetches AS f ON f.track = d.track AND d."end" <= f.ts
)
SELECT b.rank, b.name, b.fetch, b.ts, b."end" - b.ts AS dur, b.first_ns, l.dur AS last_ns
FROM begun AS b ASOF LEFT JOIN fetches AS l ON l.track = b.track AND l.name = b.name AND b.drawn >= l."end"
WHERE b."end" - b.ts >= 1000000
QUALIFY row_number() OVER (PARTITION BY b.fetch ORDER BY b.ts) = 1
ORDER BY b.rank, b.ts
