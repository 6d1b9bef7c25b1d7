-- Host calls into the device's runtime, with the ids that link them to device work.
--
-- needs: slices
-- empty without: slices
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, tracks.id
-- column name: VARCHAR, name of the call
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
-- column parent: BIGINT, enclosing slice
-- column correlation: BIGINT, id shared with the device work it submits
-- column external_id: BIGINT, id of the framework op that made the call
-- column recipe: BIGINT, id of its recipe (Gaudi), 0 or NULL for none
SELECT s.id, s.rank, s.track, s.name, s.ts, s."end", s.parent,
       try_cast(ids[1] AS BIGINT) AS correlation, try_cast(coalesce(ids[2], ids[3]) AS BIGINT) AS external_id,
       try_cast(ids[4] AS INTEGER)::BIGINT AS recipe
FROM slices AS s
JOIN (SELECT rowid AS id,
             json_extract_string(args, ['$.correlation', '$."External id"', '$."external id"', '$.recipeId']) AS ids
      FROM raw) AS r USING (id)
WHERE s.cat = 'runtime' AND s.side = 'host'
