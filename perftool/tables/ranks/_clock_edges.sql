-- Clock differences between pairs of ranks, from the ends of collectives that they share. In each collective, every
-- other rank is compared with the lowest rank.
--
-- needs: _collective_matches
-- empty without: _collective_matches
-- column anchor: INTEGER, lowest rank of the collectives
-- column rank: INTEGER, the other rank
-- column offset_ns: BIGINT, time to add to times of rank to compare them with times of anchor: the median difference
-- column matches: BIGINT, number of ends compared
-- column spread_ns: BIGINT, distance from the median within which half of the differences lie
WITH ends AS (
    SELECT rank, "end", first_value(rank) OVER together AS anchor, first_value("end") OVER together AS anchor_end
    FROM _collective_matches WHERE ends_together WINDOW together AS (PARTITION BY match ORDER BY rank)
),
differences AS (SELECT anchor, rank, anchor_end - "end" AS ns FROM ends WHERE rank <> anchor),
medians AS (SELECT anchor, rank, median(ns) AS ns, count(*) AS matches FROM differences GROUP BY anchor, rank)
SELECT m.anchor, m.rank, m.ns::BIGINT AS offset_ns, min(m.matches) AS matches,
       median(abs(d.ns - m.ns))::BIGINT AS spread_ns
FROM differences AS d JOIN medians AS m USING (anchor, rank)
GROUP BY m.anchor, m.rank, m.ns
ORDER BY m.anchor, m.rank
