-- How many passes of the program a rank recorded: the number of steps, of batches that its loaders returned, or of
-- optimizer calls, whichever is largest. A step may be a whole epoch, and a recording may have no steps.
--
-- needs: windows, dataloader, optimizer_steps, feeding_tracks
-- empty without: windows
-- column rank: INTEGER, distributed rank
-- column passes: BIGINT, the number of passes; at least 1
WITH events AS (
    SELECT d.rank, d.ts, 'batch' AS kind FROM dataloader AS d JOIN feeding_tracks AS f ON f.track = d.track
    UNION ALL SELECT rank, ts, 'update' FROM optimizer_steps
),
counted AS (
    SELECT e.rank, e.kind, count(*) AS events FROM events AS e JOIN windows AS w ON w.rank = e.rank AND e.ts >= w.host_ts AND e.ts < w.host_end
    GROUP BY e.rank, e.kind
)
SELECT w.rank, greatest(w.steps, coalesce(max(c.events), 0), 1)::BIGINT AS passes
FROM windows AS w LEFT JOIN counted AS c USING (rank) GROUP BY w.rank, w.steps
