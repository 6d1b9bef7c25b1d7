-- The matrix products of a rank together, against what the device could do.
--
-- needs: rooflines
-- empty without: rooflines
-- column rank: INTEGER, distributed rank
-- column bound_ns: DOUBLE, what they would take at the roofline
-- column dur: BIGINT, what they took
SELECT rank, sum(bound_ns) AS bound_ns, sum(dur)::BIGINT AS dur FROM rooflines GROUP BY rank
