-- One row per file read.
--
-- column path: VARCHAR, as given
-- column kind: VARCHAR, trace, fallback_log, metrics, runtime_log or config
-- column rank: INTEGER, distributed rank
-- column bytes: BIGINT, size on disk
-- column events: BIGINT, records used
-- column status: VARCHAR, ok, repaired, truncated or unreadable
SELECT * FROM _inputs
