-- One row per call to a Python function that the trace recorded (with_stack=True), and per framework op or
-- annotation that was recorded with its call stack.
--
-- PyTorch identifies a function by its first line. For a function that was already running when the recording began, it
-- records the line of the call that started the profiler, which is of no use here. These functions can be recognised:
-- in each thread, PyTorch records them first, starting with the outermost (which has no parent), before any function
-- ends.
--
-- needs: slices, ops
-- empty without: slices
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, host track
-- column file: VARCHAR, source file as recorded; NULL for modules, built-in functions, ops and annotations
-- column line: INTEGER, first line of the function; NULL if there is no file, and for a function that was already running when the recording began
-- column function: VARCHAR, name of the function, module (for example nn.Module: Linear_0), op or annotation
-- column call_line: INTEGER, line of the call in the user's own function; NULL where it is not recorded (record and perftool.profile record it)
-- column stack: VARCHAR, the whole call stack of an op or annotation, the innermost line first; NULL for a function
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
WITH calls AS (SELECT id, rank, track, name, ts, "end" FROM slices WHERE cat = 'python_function' AND side = 'host'),
names AS (SELECT DISTINCT name FROM calls),
parts AS (
    SELECT name, regexp_extract(name, '^(.+)\((\d+)\): (.+)$', ['file', 'line', 'function']) AS part FROM names
),
-- Our recorder adds the lines of calls, which PyTorch does not record.
callers AS (
    SELECT rowid AS id, try_cast(int_arg(args, 'Call line') AS INTEGER) AS call_line FROM raw
    WHERE cat = 'python_function' AND args LIKE '%"Call line"%'
),
early AS (
    SELECT c.id, c.track FROM calls AS c JOIN (SELECT rank, min("end") AS first_end FROM calls GROUP BY rank) USING (rank)
    WHERE c.ts < first_end
),
outermost AS (
    SELECT DISTINCT e.track FROM early AS e JOIN raw AS r ON r.rowid = e.id
    WHERE json_type(r.args, '$."Python parent id"') = 'NULL'
),
running AS (SELECT id FROM early WHERE track IN (FROM outermost)),
functions AS (
    SELECT s.id, s.rank, s.track, nullif(part.file, '') AS file,
           CASE WHEN o.id IS NULL THEN try_cast(part.line AS INTEGER) END AS line,
           coalesce(nullif(part.function, ''), p.name) AS function, c.call_line,
           NULL::VARCHAR AS stack, s.ts, s."end"
    FROM calls AS s JOIN parts AS p USING (name)
    LEFT JOIN callers AS c USING (id)
    LEFT JOIN running AS o USING (id)
)
SELECT * FROM functions
UNION ALL
SELECT id, rank, track, NULL, NULL, name, NULL, call_stack, ts, "end" FROM ops WHERE call_stack IS NOT NULL AND call_stack <> ''
UNION ALL
SELECT s.id, s.rank, s.track, NULL, NULL, s.name, NULL, arg(r.args, 'Call stack'), s.ts, s."end"
FROM raw AS r JOIN slices AS s ON s.id = r.rowid
WHERE r.cat = 'user_annotation' AND r.args LIKE '%"Call stack"%' AND s.side = 'host'
