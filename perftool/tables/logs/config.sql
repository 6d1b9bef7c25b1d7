-- One row per setting of the run: start-up banner, DeepSpeed and Gaudi configuration files, environment.
--
-- column source: VARCHAR, banner, deepspeed, gaudi_config, environment or json
-- column key: VARCHAR, name of the setting, dotted when the file nests
-- column value: VARCHAR, its text
-- column rank: INTEGER, rank that printed it, when known
-- column path: VARCHAR, the file
SELECT * FROM _config
