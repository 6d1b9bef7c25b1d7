-- One row per rank: its clock relative to the lowest rank. Only for comparing ranks; no other table uses it.
--
-- needs: windows, _clock_offsets
-- empty without: windows
-- column rank: INTEGER, distributed rank
-- column offset_ns: BIGINT, offset to add to a time of this rank to compare it with times of the lowest; NULL when no collective links them
-- column matches: BIGINT, number of compared ends of collectives, the fewest along a chain of groups
-- column spread_ns: BIGINT, half of the ends are within this distance of the offset; summed along a chain
SELECT w.rank, o.offset_ns, coalesce(o.matches, 0)::BIGINT AS matches, o.spread_ns
FROM windows AS w LEFT JOIN _clock_offsets AS o USING (rank)
ORDER BY w.rank
