-- One row per operator that ran on the CPU with argument types that no device kernel of it takes: by the types its
-- registration lists, or because no Gaudi computes with them.
--
-- column op: VARCHAR, operator, with overload when known
-- column base: VARCHAR, operator without overload
-- column missing: VARCHAR, the argument types the device lacks
-- column supported: VARCHAR, the types the device has for it, NULL when its registration lists none
SELECT * FROM _log_dtypes
