-- The rank of the only recording that was given. Rules that can only guess at the other ranks need it.
--
-- absent: several ranks were given, and rules over ranks compare them
-- needs: _ranks
-- column rank: INTEGER, distributed rank
SELECT min(rank) AS rank FROM _ranks WHERE status = 'ok' HAVING count(*) = 1
