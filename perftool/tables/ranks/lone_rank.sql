-- The rank of the only recording that was given, for rules that judge communication without the other ranks.
--
-- absent: several ranks were given; other rules compare them
-- needs: _ranks
-- column rank: INTEGER, distributed rank
SELECT min(rank) AS rank FROM _ranks WHERE status = 'ok' HAVING count(*) = 1
