-- One row per compilation of a graph: by torch.compile, or by the Gaudi graph compiler. The events of one
-- compilation form one row, even on different lanes. Logs and metrics are used if the trace shows no compilation.
--
-- needs: _traced_compilations, _log_compilations
-- empty without: _traced_compilations or _log_compilations
-- column id: BIGINT, slices.id of the first event, NULL when a log or metrics file is the source
-- column rank: INTEGER, distributed rank
-- column step: INTEGER, step in which the compilation begins
-- column recipe: VARCHAR, what was compiled, when known
-- column reason: VARCHAR, new shapes, same shapes or unknown
-- column source: VARCHAR, torch.compile, trace, recipe name (a recipe that first appears late), metrics or log
-- column ts: BIGINT, start in ns, NULL when a log or metrics file is the source
-- column dur: BIGINT, duration in ns, NULL when unknown
-- column end: BIGINT, end in ns
SELECT * FROM _traced_compilations
UNION ALL
SELECT NULL, l.rank, l.step, l.recipe, coalesce(l.reason, 'unknown'), l.source, NULL, l.dur, NULL
FROM _log_compilations AS l
WHERE l.rank IS NULL OR l.rank NOT IN (SELECT rank FROM _traced_compilations)
