-- One row per batch fetched from a data loader. A fetch belongs to the step that waits for it on the host, whole, also
-- where the device still works for the step before.
--
-- needs: slices, _names, _step_bounds
-- empty without: _names.roles=dataloader
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, host track
-- column step: INTEGER, step whose annotation it begins in
-- column name: VARCHAR, which iterator, for example enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__
-- column workers: BOOLEAN, whether worker processes prepare the batches
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, length in ns: how long the training thread waited for it
-- column end: BIGINT, end in ns
SELECT l.id, l.rank, l.track, s.step, l.name, contains(l.name, 'MultiProcessing') AS workers, l.ts, l.dur, l."end"
FROM slices AS l
JOIN _names AS n ON n.name = l.name AND n.cat = l.cat AND list_contains(n.roles, 'dataloader')
ASOF LEFT JOIN _step_bounds AS s ON s.rank = l.rank AND l.ts >= s.host_ts
WHERE l.side = 'host'
