-- Every event that is a compilation or part of one, with what it compiles when the trace says so.
--
-- needs: slices, _names
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
-- column recipe: VARCHAR, recipe name or id (Gaudi)
-- column source: VARCHAR, torch.compile or trace (the Gaudi graph compiler)
SELECT s.id, s.rank, s.ts, s."end", NULL::VARCHAR AS recipe, 'torch.compile' AS source
FROM slices AS s
WHERE s.side = 'host' AND s.cat = 'cpu_op'
    AND (s.name IN ('dynamo', 'entire_frame_compile', 'entire_backward_compile', 'compile_attempt_0')
         OR regexp_matches(s.name, '^(_compile\.compile_inner|backward\._backward_impl) \(dynamo_timed\)'))
UNION ALL
SELECT s.id, s.rank, s.ts, s."end",
       coalesce(nullif(arg(r.args, 'recipeName'), ''), nullif(arg(r.args, 'recipeId'), '0')), 'trace'
FROM slices AS s JOIN raw AS r ON r.rowid = s.id
WHERE s.side = 'host' AND s.cat = 'runtime'
    AND s.name IN ('compileGraph', 'synGraphCompile', 'CompileSynapse', 'CompileGraphWithRange', 'BuildSynapseGraph',
                   'add_new_recipe')
