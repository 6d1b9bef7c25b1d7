-- One row per rank on a CPU with few steps, one of which is long because of a call that no other step makes, such as a
-- plot or an export.
--
-- Fewer than ten steps do not show how often such a call recurs, so the typical step time that gains are compared with
-- excludes the call. The call takes more than half of the additional time of the step and computes little. Saving a
-- checkpoint, evaluation and the profiler's own work have their own phases, and no row here.
--
-- needs: steps, slices, launches, roles, feeding_tracks
-- empty without: steps
-- column rank: INTEGER, distributed rank
-- column step: INTEGER, number of the step that makes the call
-- column steps: BIGINT, number of complete steps
-- column step_ns: BIGINT, duration of the step
-- column median_ns: DOUBLE, duration of the median step
-- column file: VARCHAR, file of the Python function that makes the call
-- column line: INTEGER, first line of the function; NULL when unknown
-- column function: VARCHAR, name of the function
-- column ns: BIGINT, duration of its calls
WITH counted AS (
    SELECT rank, step, host_ts, host_end, dur, median(dur) OVER w AS middle, count(*) OVER w AS steps,
           row_number() OVER (PARTITION BY rank ORDER BY ts) AS number
    FROM steps WHERE NOT partial AND step IS NOT NULL AND source <> 'iteration' AND rank IN (SELECT rank FROM launches WHERE own_work)
    WINDOW w AS (PARTITION BY rank)
),
long AS (
    SELECT * FROM counted WHERE steps BETWEEN 4 AND 9 AND dur > 1.5 * middle AND dur - middle > 1000000
    QUALIFY count(*) OVER (PARTITION BY rank) = 1 AND number > 1
),
apart AS (SELECT name FROM roles WHERE role IN ('profiler', 'checkpoint', 'evaluation')),
calls AS (
    SELECT rank, name, track, ts, "end" FROM slices
    WHERE cat = 'python_function' AND side = 'host' AND rank IN (SELECT rank FROM long) AND track IN (SELECT track FROM feeding_tracks)
),
only_there AS (
    SELECT c.rank, c.name, c.track FROM calls AS c JOIN long AS l USING (rank)
    WHERE regexp_matches(c.name, '\(\d+\): ') AND c.name NOT IN (FROM apart) GROUP BY c.rank, c.name, c.track
    HAVING min(c.ts) >= min(l.host_ts) AND max(c."end") <= min(l.host_end) AND 2 * sum(c."end" - c.ts) > min(l.dur - l.middle)
),
-- A function may call itself, so only its outermost calls count.
outermost AS (
    SELECT *, max("end") OVER (PARTITION BY rank, track, name ORDER BY ts, "end" DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM calls SEMI JOIN only_there USING (rank, name, track)
),
functions AS (
    SELECT s.rank, s.name, s.track, min(s.ts) AS ts, max(s."end") AS "end", sum(s."end" - s.ts)::BIGINT AS ns,
           min(l.step) AS step, min(l.steps) AS steps, min(l.dur) AS step_ns, min(l.middle) AS middle
    FROM outermost AS s JOIN long AS l USING (rank) WHERE s.before IS NULL OR s.ts >= s.before
    GROUP BY s.rank, s.name, s.track HAVING 2 * sum(s."end" - s.ts) > min(l.dur - l.middle)
),
computed AS (
    SELECT f.rank, f.name, sum(o."end" - o.ts) AS ns FROM functions AS f
    JOIN (FROM slices WHERE cat = 'cpu_op' AND outermost) AS o ON o.track = f.track AND o.ts >= f.ts AND o."end" <= f."end"
    GROUP BY f.rank, f.name
)
SELECT f.rank, f.step, f.steps, f.step_ns, f.middle AS median_ns, f.place.file AS file, try_cast(f.place.line AS INTEGER) AS line,
       f.place.function AS function, least(f.ns, f.step_ns - f.middle)::BIGINT AS ns
FROM (SELECT *, regexp_extract(name, '^(.+)\((\d+)\): (.+)$', ['file', 'line', 'function']) AS place FROM functions) AS f
LEFT JOIN computed AS c USING (rank, name)
WHERE coalesce(c.ns, 0) < 0.2 * f.ns
-- The outermost call comes first; then calls of equal length by their start.
QUALIFY row_number() OVER (PARTITION BY f.rank ORDER BY f.ns DESC, f.ts, f.name) = 1
ORDER BY f.rank
