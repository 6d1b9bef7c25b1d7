-- One row per rank: the offset of its clock from that of the lowest rank. Use the offset only to compare ranks; the
-- times in other tables do not include it.
--
-- needs: windows, _clock_offsets
-- empty without: windows
-- column rank: INTEGER, distributed rank
-- column offset_ns: BIGINT, time to add to a time of this rank to compare it with times of the lowest rank; NULL when no collective links the two
-- column matches: BIGINT, number of collective ends compared; for a chain of groups, the smallest
-- column spread_ns: BIGINT, distance from the offset within which half of the ends lie; for a chain of groups, the sum
SELECT w.rank, o.offset_ns, coalesce(o.matches, 0)::BIGINT AS matches, o.spread_ns
FROM windows AS w LEFT JOIN _clock_offsets AS o USING (rank)
ORDER BY w.rank
