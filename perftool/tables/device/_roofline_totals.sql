-- Totals of the matmuls of a rank, compared with the roofline of the device.
--
-- needs: rooflines
-- empty without: rooflines
-- column rank: INTEGER, distributed rank
-- column bound_ns: DOUBLE, time of the matmuls at the roofline in ns
-- column dur: BIGINT, actual time of the matmuls in ns
SELECT rank, sum(bound_ns ORDER BY bound_ns) AS bound_ns, sum(dur)::BIGINT AS dur FROM rooflines GROUP BY rank ORDER BY rank
