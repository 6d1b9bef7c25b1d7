-- One row per rank whose device is in devices.toml. The device is taken from the metadata or, failing that, from a lane
-- that exists on only one model. Where the CPU is the device, its rates were measured when the trace was recorded.
--
-- absent: devices.toml has no peak rates for a device in the trace, and the recorder measured none
-- needs: devices, tracks, _vocabulary, machines, _cpu_runs
-- empty without: devices or tracks.engine or machines.device
-- column rank: INTEGER, distributed rank
-- column device: VARCHAR, device_facts.device
SELECT rank, min(known) AS device FROM devices
GROUP BY rank HAVING count(known) = count(*) AND count(DISTINCT known) = 1
UNION ALL
SELECT t.rank, min(v.role) FROM tracks AS t JOIN _vocabulary AS v ON v.subject = 'generation' AND lower(t.thread) GLOB v.pattern
WHERE t.engine IS NOT NULL AND t.rank NOT IN (SELECT rank FROM devices)
GROUP BY t.rank HAVING count(DISTINCT v.role) = 1
UNION ALL
SELECT rank, device FROM machines WHERE device IS NOT NULL AND rank IN (FROM _cpu_runs)
