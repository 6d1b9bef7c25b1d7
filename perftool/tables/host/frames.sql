-- One row per call of a Python function that the trace recorded (with_stack=True), and per framework op that was
-- recorded with its call stack.
--
-- needs: slices, ops
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, host track
-- column file: VARCHAR, source file as recorded, NULL for modules and built-in functions
-- column line: INTEGER, line that the function begins at, or, from a call stack, that made the call; NULL with the file
-- column function: VARCHAR, its name; for a module its name, for example nn.Module: Linear_0
-- column stack: VARCHAR, the whole call stack of an op, the innermost line first; NULL for a function
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
WITH names AS (
    SELECT DISTINCT name FROM slices WHERE cat = 'python_function' AND side = 'host'
),
parts AS (
    SELECT name, regexp_extract(name, '^(.+)\((\d+)\): (.+)$', ['file', 'line', 'function']) AS part FROM names
),
functions AS (
    SELECT s.id, s.rank, s.track, nullif(part.file, '') AS file, try_cast(part.line AS INTEGER) AS line,
           coalesce(nullif(part.function, ''), p.name) AS function, NULL::VARCHAR AS stack, s.ts, s."end"
    FROM slices AS s JOIN parts AS p USING (name)
    WHERE s.cat = 'python_function' AND s.side = 'host'
)
SELECT * FROM functions
UNION ALL
SELECT id, rank, track, NULL, NULL, name, call_stack, ts, "end" FROM ops WHERE call_stack IS NOT NULL AND call_stack <> ''
