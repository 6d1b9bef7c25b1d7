-- One row per device that a trace names.
--
-- column rank: INTEGER, distributed rank
-- column name: VARCHAR, as the trace spells it, for example GAUDI2
-- column memory_bytes: BIGINT, size of its memory, NULL when the trace does not say
-- column published_bytes: BIGINT, size of the memory of the known device
-- column known: VARCHAR, the device of device_facts that this is, NULL when its name says nothing exact
SELECT * FROM _devices
