-- One row per call to a module of the model (torch.nn.Module), and whether a backward pass goes through it.
--
-- A backward pass goes through a call in three cases: the call contains a differentiated op; it is inside a
-- differentiated op (as with checkpointing) or a backward function; or autograd assigned, during the call, the sequence
-- number of a backward function that runs. If more than a tenth of a rank's backward functions differentiate ops that
-- were not recorded, it is unknown whether a backward pass goes through the other calls.
--
-- absent: the trace has no modules (with_stack=True records them), or no autograd sequence numbers
-- needs: frames, ops, _differentiated
-- empty without: frames, _differentiated
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, host track
-- column module: VARCHAR, class of the module
-- column instance: VARCHAR, class and number of the module, as in the trace (for example Linear_0)
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
-- column file: VARCHAR, source file of the module's forward function; NULL if it is not recorded
-- column line: INTEGER, first line of this function
-- column differentiated: BOOLEAN, whether a recorded backward pass goes through the call; NULL if unknown
WITH calls AS (
    SELECT id, rank, track, regexp_replace(function, '^nn\.Module: |_\d+$', '', 'g') AS module,
           regexp_replace(function, '^nn\.Module: ', '') AS instance, ts, "end"
    FROM frames WHERE file IS NULL AND starts_with(function, 'nn.Module: ') AND rank IN (SELECT rank FROM _differentiated)
),
passes AS (
    SELECT op_track AS track, op_ts AS ts, max(op_end) AS "end" FROM _differentiated WHERE op IS NOT NULL GROUP BY ALL
    UNION SELECT track, ts, "end" FROM _differentiated
),
covered AS (SELECT track, ts, max("end") OVER (PARTITION BY track ORDER BY ts) AS until FROM passes),
numbers AS (
    SELECT track, ts, sequence FROM ops
    WHERE sequence >= 0 AND coalesce(fwd_thread, 0) = 0 AND NOT starts_with(name, 'autograd::engine') AND track IN (SELECT track FROM calls)
),
ranges AS (
    SELECT c.id, c.rank, f.sequence AS first, coalesce(n.sequence, f.sequence + 1) AS next
    FROM calls AS c ASOF JOIN numbers AS f ON f.track = c.track AND c.ts <= f.ts
    ASOF LEFT JOIN numbers AS n ON n.track = c.track AND c."end" <= n.ts WHERE f.ts < c."end"
),
run AS (SELECT DISTINCT o.rank, o.sequence FROM _differentiated AS d JOIN ops AS o ON o.id = d.function),
differentiated AS (
    SELECT c.id FROM calls AS c ASOF JOIN passes AS p ON p.track = c.track AND c.ts <= p.ts WHERE p.ts < c."end"
    UNION
    SELECT c.id FROM calls AS c ASOF JOIN covered AS p ON p.track = c.track AND c.ts >= p.ts WHERE c.ts < p.until
    UNION
    SELECT r.id FROM ranges AS r ASOF JOIN run AS u ON u.rank = r.rank AND r.first <= u.sequence WHERE u.sequence < r.next
),
unknown AS (SELECT rank FROM _differentiated GROUP BY rank HAVING 10 * count(op) < 9 * count(*)),
-- The forward function of a call is the first function in it.
forwards AS (
    SELECT c.id, arg_min({'file': f.file, 'line': f.line}, (f.ts, f.id)) AS forward
    FROM frames AS f ASOF JOIN calls AS c ON c.track = f.track AND f.ts >= c.ts
    WHERE f.function = 'forward' AND f.file IS NOT NULL AND f."end" <= c."end" GROUP BY c.id
)
SELECT c.*, f.forward.file AS file, f.forward.line AS line,
       CASE WHEN d.id IS NOT NULL THEN true WHEN u.rank IS NULL THEN false END AS differentiated
FROM calls AS c LEFT JOIN forwards AS f USING (id) LEFT JOIN differentiated AS d USING (id) LEFT JOIN unknown AS u ON u.rank = c.rank
ORDER BY c.rank, c.ts, c.id
