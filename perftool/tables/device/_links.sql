-- Which host call submitted which device work.
--
-- needs: _device_work, _runtime, _recipe_links, _synapse_copies
-- empty without: _device_work, _runtime
-- column rank: INTEGER, distributed rank
-- column launch: BIGINT, host call (slices.id)
-- column work: BIGINT, unit of device work (slices.id)
SELECT w.rank, r.id AS launch, w.id AS work
FROM _device_work AS w
JOIN _runtime AS r ON r.rank = w.rank AND r.correlation = w.correlation
WHERE w.set_aside IS NULL
UNION ALL
SELECT rank, launch, work FROM _recipe_links
UNION ALL
SELECT w.rank, c.call, c.work FROM _synapse_copies AS c JOIN _device_work AS w ON w.id = c.work
