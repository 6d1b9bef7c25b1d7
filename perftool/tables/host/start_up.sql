-- One row per host call that is slow only once: context creation, module loading, the first launch of a kernel.
--
-- Such a call takes more than a millisecond, and more than a hundred times as long as a short call of its name (the
-- 25th percentile). If no other call has its name, it is compared with the median call of the rank. A launch must be
-- the first of its kernel. Waits and copies do not count, because they depend on the device.
--
-- needs: _runtime, _name_roles, tracks, launches, device_ops
-- empty without: _runtime
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, tracks.id
-- column name: VARCHAR, name of the call
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
WITH calls AS (
    SELECT r.id, r.rank, r.track, r.name, r.ts, r."end", r."end" - r.ts AS dur
    FROM _runtime AS r JOIN _name_roles AS n ON n.name = r.name AND n.cat = 'runtime'
    -- On Gaudi, start-up work shows as compilations.
    WHERE NOT n.waits AND NOT n.copies AND r.rank NOT IN (SELECT rank FROM tracks WHERE engine IS NOT NULL)
),
usual AS (SELECT rank, name, count(*) AS calls, quantile_disc(dur, 0.25) AS ns FROM calls GROUP BY rank, name),
overall AS (SELECT rank, median(dur) AS ns FROM calls GROUP BY rank),
firsts AS (SELECT arg_min(launch, (ts, id)) AS launch FROM device_ops WHERE launch IS NOT NULL GROUP BY rank, name),
slow AS (
    SELECT c.* FROM calls AS c JOIN usual AS u USING (rank, name) JOIN overall AS o USING (rank)
    WHERE c.dur > 1000000 AND c.dur > 100 * CASE WHEN u.calls > 1 THEN u.ns ELSE o.ns END
)
SELECT id, rank, track, name, ts, "end" FROM slow
WHERE id NOT IN (SELECT id FROM launches) OR id IN (SELECT launch FROM firsts)
