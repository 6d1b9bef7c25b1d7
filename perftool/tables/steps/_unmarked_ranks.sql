-- The ranks in whose recordings nothing marks steps.
--
-- needs: tracks, _marked_steps
-- empty without: tracks
-- column rank: INTEGER, distributed rank
SELECT rank FROM tracks EXCEPT SELECT rank FROM _marked_steps
