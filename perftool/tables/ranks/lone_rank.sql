-- The rank of the only recording that was given, for rules about the other ranks.
--
-- absent: several ranks were given, which other rules compare
-- needs: _ranks
-- column rank: INTEGER, distributed rank
SELECT min(rank) AS rank FROM _ranks WHERE status = 'ok' HAVING count(*) = 1
