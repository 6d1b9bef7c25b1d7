-- What the name of a unit of device work says, decided once per name instead of once per unit.
--
-- needs: _device_work
-- column name: VARCHAR, _device_work.name
-- column collective: BOOLEAN, a kernel of a library of collectives
-- column to_host: BOOLEAN, a copy from the device to the host
SELECT name, regexp_matches(name, '^(nccl|rccl|hccl|oneccl|mscclpp?|ncclx)', 'i') AS collective,
       regexp_matches(name, 'DtoH|Device ?-> ?(Host|Pageable|Pinned)', 'i') AS to_host
FROM (SELECT DISTINCT name FROM _device_work)
