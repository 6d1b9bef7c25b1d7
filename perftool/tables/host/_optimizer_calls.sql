-- One row per call to an optimizer's step, without its closure. A closure, which PyTorch Lightning always passes, runs
-- forward and backward inside the call; the optimizer's own work begins after it.
--
-- The backward pass ends with the last function of the autograd engine inside the call. Hooks may follow it. If frames
-- are recorded, the closure ends with the frame outside of PyTorch that contains the end of the backward pass;
-- otherwise, the optimizer's own work begins with the first in-place op.
--
-- needs: slices, roles, frames
-- empty without: roles.role=optimizer_step
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, host track
-- column name: VARCHAR, name of the annotation
-- column ts: BIGINT, start of its own work in ns
-- column end: BIGINT, end in ns
WITH calls AS (
    SELECT id, rank, track, name, ts, "end"
    -- Deeper stacks do not occur in practice.
    FROM slices WHERE side = 'host' AND depth < 128 AND name IN (SELECT name FROM roles WHERE role = 'optimizer_step')
),
functions AS (
    SELECT rank, track, ts, "end" FROM slices
    WHERE side = 'host' AND name IN (SELECT name FROM roles WHERE role = 'autograd')
),
-- If several threads train, autograd functions belong to the optimizer of their own thread.
differentiated AS (
    SELECT c.id, c.track, c.ts, c."end", max(f."end") AS until
    FROM functions AS f ASOF JOIN calls AS c ON c.rank = f.rank AND f.ts >= c.ts
    WHERE f."end" <= c."end" AND (f.track = c.track OR f.track NOT IN (SELECT track FROM calls))
    GROUP BY c.id, c.track, c.ts, c."end"
),
around AS (
    SELECT d.id, max(f."end") AS until
    FROM frames AS f ASOF JOIN differentiated AS d ON d.track = f.track AND f.ts >= d.ts
    WHERE NOT starts_with(f.file, 'torch/') AND f.ts < d.until AND f."end" >= d.until AND f."end" < d."end"
    GROUP BY d.id
),
updated AS (
    SELECT d.id, min(s.ts) AS ts
    FROM slices AS s ASOF JOIN differentiated AS d ON d.track = s.track AND s.ts >= d.until
    WHERE s."end" <= d."end" AND s.cat = 'cpu_op' AND regexp_matches(s.name::VARCHAR, '^aten::(_foreach_|_fused_|\w+_$)')
        AND s.name NOT IN ('aten::copy_', 'aten::detach_', 'aten::fill_', 'aten::zero_')
    GROUP BY d.id
)
SELECT c.id, c.rank, c.track, c.name, coalesce(a.until, u.ts, d.until, c.ts) AS ts, c."end"
FROM calls AS c LEFT JOIN differentiated AS d USING (id) LEFT JOIN around AS a USING (id) LEFT JOIN updated AS u USING (id)
