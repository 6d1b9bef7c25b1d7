-- Every event that is a compilation, or part of one, with the recipe when recorded.
--
-- needs: slices, _name_roles
-- empty without: _name_roles.compiles
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
-- column recipe: VARCHAR, recipe name or id (Gaudi)
-- column source: VARCHAR, torch.compile or trace (the Gaudi graph compiler)
SELECT s.id, s.rank, s.ts, s."end",
       CASE n.compiles WHEN 'trace'
            THEN short_name(coalesce(nullif(arg(r.args, 'recipeName'), ''), nullif(arg(r.args, 'recipeId'), '0'))) END AS recipe,
       n.compiles AS source
FROM slices AS s
JOIN _name_roles AS n ON n.name = s.name AND n.cat = s.cat AND n.compiles IS NOT NULL
JOIN raw AS r ON r.rowid = s.id
WHERE s.side = 'host'
