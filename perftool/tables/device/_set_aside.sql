-- One row per rank with impossible device events, which no sum includes.
--
-- needs: _device_work
-- empty without: _device_work
-- column rank: INTEGER, distributed rank
-- column events: BIGINT, number of impossible device events
SELECT rank, count(*) AS events FROM _device_work WHERE set_aside IS NOT NULL GROUP BY rank
