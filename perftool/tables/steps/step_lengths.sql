-- Two rows per rank whose steps have two lengths, because some steps do additional work, such as an evaluation. The
-- median does not describe such steps.
--
-- Steps are sorted by length and split where the ratio of neighbours is largest. The difference between these
-- neighbours must exceed a millisecond, because the operating system causes smaller differences, and be at least half
-- of the shorter neighbour. It must also exceed twice the spread of the short steps, and be at least the spread of the
-- long steps. Each side must have at least two steps and 20 % of all steps. Long steps that precede all short steps are
-- a warm-up. Iterations of a server (prefill, decode) are left out.
--
-- needs: steps
-- empty without: steps
-- column rank: INTEGER, distributed rank
-- column length: VARCHAR, short or long
-- column steps: BIGINT, number of complete steps
-- column shortest_ns: BIGINT, duration of the shortest of these steps
-- column longest_ns: BIGINT, duration of the longest of these steps
-- column total_ns: BIGINT, total time of these steps
WITH counted AS (
    SELECT rank, ts, dur, row_number() OVER o AS place, count(*) OVER (PARTITION BY rank) AS n, lead(dur) OVER o AS next,
           min(dur) OVER (PARTITION BY rank) AS shortest, max(dur) OVER (PARTITION BY rank) AS longest
    FROM steps WHERE NOT partial AND step IS NOT NULL AND source <> 'iteration'
    WINDOW o AS (PARTITION BY rank ORDER BY dur, ts)
),
split AS (
    SELECT rank, arg_max(place, (next / greatest(dur, 1), -place)) AS place FROM counted
    WHERE next >= 1.5 * dur AND next > dur + 1000000 AND next - dur > 2 * (dur - shortest) AND next - dur >= longest - next
        AND least(place, n - place) >= greatest(2, 0.2 * n)
    GROUP BY rank
),
sorted AS (SELECT c.*, c.place > s.place AS long FROM counted AS c JOIN split AS s USING (rank))
SELECT rank, CASE WHEN long THEN 'long' ELSE 'short' END AS length, count(*) AS steps, min(dur) AS shortest_ns,
       max(dur) AS longest_ns, sum(dur)::BIGINT AS total_ns
FROM sorted
WHERE rank IN (SELECT rank FROM sorted GROUP BY rank HAVING max(ts) FILTER (long) > min(ts) FILTER (NOT long))
GROUP BY rank, long ORDER BY rank, long
