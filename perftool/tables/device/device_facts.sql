-- One row per published or estimated figure of a known device, from devices.toml.
--
-- column device: VARCHAR, name as traces spell it
-- column fact: VARCHAR, memory, memory_bandwidth, pcie_bandwidth, lanes of an engine, or peak rate of a unit and type
-- column value: DOUBLE, in unit
-- column unit: VARCHAR, bytes, bytes/s, count or FLOP/s
-- column estimate: BOOLEAN, derived rather than published
-- column source: VARCHAR, where it comes from
SELECT * FROM _device_facts
