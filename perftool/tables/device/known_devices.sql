-- One row per rank whose devices devices.toml knows.
--
-- absent: the trace names no device whose peak rates are published in devices.toml
-- needs: devices
-- empty without: devices
-- column rank: INTEGER, distributed rank
-- column device: VARCHAR, device_facts.device
SELECT rank, min(known) AS device FROM devices
GROUP BY rank HAVING count(known) = count(*) AND count(DISTINCT known) = 1
