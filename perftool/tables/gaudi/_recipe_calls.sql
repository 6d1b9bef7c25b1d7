-- One row per launch of a recipe on Gaudi. The trace shows the call of Synapse's method, the annotation inside it, or
-- both. Either may name the recipe.
--
-- needs: _runtime, roles
-- empty without: roles.role=recipe_launch
-- column id: BIGINT, the outermost call (slices.id)
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, thread that launched the recipe (tracks.id)
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
-- column recipe: BIGINT, Synapse's id of the recipe, NULL when no call states it
-- column name: VARCHAR, name of the recipe, NULL when it has no name
-- column handle: VARCHAR, handle of the recipe, NULL when no call states it
-- column seq: BIGINT, sequence number of the launch in its stream
-- column in_flight: BIGINT, number of unfinished launches of the stream
WITH calls AS (
    SELECT u.id, u.rank, u.track, u.name AS text, u.ts, u."end",
           u.recipe,
           json_extract_string(r.args, ['$.recipeName', '$.recipeHandle']) AS a
    FROM _runtime AS u JOIN raw AS r ON r.rowid = u.id
    WHERE u.name IN (SELECT name FROM roles WHERE cat = 'runtime' AND role = 'recipe_launch')
),
nested AS (
    SELECT *, coalesce("end" > max("end") OVER (PARTITION BY track ORDER BY ts, "end" DESC, id
                                                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), true) AS outer_most
    FROM calls
),
grouped AS (
    SELECT *, count(*) FILTER (outer_most) OVER (PARTITION BY track ORDER BY ts, "end" DESC, id ROWS UNBOUNDED PRECEDING) AS launch
    FROM nested
)
SELECT first(id ORDER BY ts, "end" DESC, id) AS id, rank, track, min(ts) AS ts, max("end") AS "end", nullif(max(recipe), 0) AS recipe,
       short_name(max(nullif(a[1], ''))) AS name,
       short_name(max(coalesce(nullif(a[2], ''), nullif(regexp_extract(text, 'recipeHandle[: ](0x[0-9a-fA-F]+)', 1), '')))) AS handle,
       max(try_cast(regexp_extract(text, 'seqId[: ](\d+)', 1) AS BIGINT)) AS seq,
       max(try_cast(regexp_extract(text, 'inFlight[: ](\d+)', 1) AS BIGINT)) AS in_flight
FROM grouped GROUP BY rank, track, launch
