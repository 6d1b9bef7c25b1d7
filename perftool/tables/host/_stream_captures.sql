-- Times when a stream captures a graph. Calls during a capture launch nothing. A capture without a recorded end lasts
-- until the end of the recording.
--
-- needs: slices, roles, _extents
-- empty without: _extents, roles.role=capture_begin
-- column rank: INTEGER, distributed rank
-- column name: VARCHAR, the call that begins the capture
-- column ts: BIGINT, start of the call that begins the capture, in ns
-- column end: BIGINT, end of the call that ends the capture
WITH calls AS (
    SELECT s.rank, s.name, s.ts, s."end", r.role FROM slices AS s JOIN roles AS r ON r.name = s.name AND r.cat = s.cat
    WHERE s.cat = 'runtime' AND s.side = 'host' AND r.role IN ('capture_begin', 'capture_end')
)
SELECT b.rank, b.name, b.ts, coalesce(e."end", x.host_end) AS "end" FROM calls AS b
JOIN _extents AS x USING (rank)
ASOF LEFT JOIN (SELECT rank, ts, "end" FROM calls WHERE role = 'capture_end') AS e ON e.rank = b.rank AND b.ts <= e.ts
WHERE b.role = 'capture_begin'
