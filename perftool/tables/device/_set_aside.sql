-- One row per rank with impossible device events, which are left out of all sums.
--
-- needs: _device_work
-- empty without: _device_work
-- column rank: INTEGER, distributed rank
-- column events: BIGINT, number of impossible device events
-- column name: VARCHAR, name of the first of these events, at most 80 characters
-- column at: BIGINT, start of the first event in ns, according to the trace
SELECT rank, count(*) AS events, cut_text(arg_min(name, (ts, id)), 80) AS name, min(ts) AS at
FROM _device_work WHERE set_aside IS NOT NULL GROUP BY rank
