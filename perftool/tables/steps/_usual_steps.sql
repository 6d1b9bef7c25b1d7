-- One row per rank with complete steps: the typical step time, which is the reference for all times per step.
--
-- The typical time is the median, or the mean if the steps have two lengths or if mean and median differ by at least 25
-- %. For iterations of a server, it is always the median, because there are several kinds of iterations. A call that
-- only one of a few steps makes (one_offs) does not count.
--
-- needs: steps, step_lengths, one_offs
-- empty without: steps
-- column rank: INTEGER, distributed rank
-- column steps: BIGINT, number of complete steps
-- column total_ns: BIGINT, total duration of the complete steps, without the calls in one_offs
-- column uneven: BOOLEAN, whether usual_ns is the mean
-- column usual_ns: DOUBLE, duration of the mean or the median step
WITH lengths AS (
    SELECT s.rank, s.source, s.dur - coalesce(o.ns, 0) AS dur FROM steps AS s LEFT JOIN one_offs AS o USING (rank, step)
    WHERE NOT s.partial AND s.step IS NOT NULL
),
counted AS (
    SELECT rank, count(*) AS steps, sum(dur)::BIGINT AS total_ns, median(dur) AS median_ns, avg(dur) AS mean_ns,
           bool_or(source = 'iteration') AS served
    FROM lengths GROUP BY rank
),
judged AS (
    SELECT *, rank IN (SELECT rank FROM step_lengths)
              OR NOT served AND greatest(mean_ns, median_ns) >= 1.25 * least(mean_ns, median_ns) AS uneven
    FROM counted
)
SELECT rank, steps, total_ns, uneven, CASE WHEN uneven THEN mean_ns ELSE median_ns END::DOUBLE AS usual_ns
FROM judged ORDER BY rank
