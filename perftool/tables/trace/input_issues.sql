-- One row per kind of thing that a reader dropped or repaired.
--
-- needs: _issues, _pairs
-- column path: VARCHAR, the file
-- column kind: VARCHAR, what happened, for example dropped events
-- column count: BIGINT, how many events, records or lines
-- column bytes: BIGINT, length of the text concerned, NULL when unknown
-- column offset: BIGINT, place of the first one in bytes of uncompressed input, NULL when unknown
-- column message: VARCHAR, one sentence
SELECT * FROM _issues
