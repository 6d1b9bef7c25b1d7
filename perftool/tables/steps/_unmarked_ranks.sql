-- The ranks whose recordings do not mark steps.
--
-- needs: tracks, _marked_steps
-- empty without: tracks
-- column rank: INTEGER, distributed rank
SELECT rank FROM tracks EXCEPT SELECT rank FROM _marked_steps
