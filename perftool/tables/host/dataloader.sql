-- One row per batch fetched from a data loader. A fetch belongs as a whole to the step that waits for it on the host,
-- even if the device is still working on the previous step.
--
-- needs: slices, _name_roles, _step_bounds
-- empty without: _name_roles.roles=dataloader
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, host track
-- column step: INTEGER, the last step whose annotation begins before the fetch
-- column name: VARCHAR, the iterator, for example enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__
-- column workers: BOOLEAN, whether worker processes prepare the batches
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, duration in ns: the time that the program waits for the batch
-- column end: BIGINT, end in ns
SELECT l.id, l.rank, l.track, s.step, l.name, contains(l.name, 'MultiProcessing') AS workers, l.ts, l.dur, l."end"
FROM slices AS l
JOIN _name_roles AS n ON n.name = l.name AND n.cat = l.cat AND list_contains(n.roles, 'dataloader')
ASOF LEFT JOIN _step_bounds AS s ON s.rank = l.rank AND l.ts >= s.host_ts
WHERE l.side = 'host'
