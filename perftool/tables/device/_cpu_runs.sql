-- The ranks whose device is taken to be the CPU, because nothing in the input shows another device.
--
-- The trace of a job on an accelerator may contain no event of that device. Calls into its runtime, ops on its tensors,
-- metadata or logs then reveal it. A thread that runs only the backward pass also reveals it: the autograd engine has a
-- thread for each accelerator, while the CPU's backward pass runs on the calling thread.
--
-- needs: slices, tracks, roles, _device_signs
-- empty without: slices
-- column rank: INTEGER, distributed rank
WITH hosts AS (
    SELECT rank FROM tracks
    EXCEPT SELECT rank FROM tracks WHERE side = 'device'
    EXCEPT SELECT rank FROM _device_signs
),
ops AS (SELECT rank, track, name, cat, depth FROM slices SEMI JOIN hosts USING (rank) WHERE cat IN ('cpu_op', 'runtime')),
others AS (
    SELECT rank FROM ops WHERE cat = 'runtime' OR name IN (SELECT name FROM roles WHERE role = 'on_device')
    UNION
    SELECT rank FROM slices SEMI JOIN hosts USING (rank)
    WHERE cat = 'user_annotation' AND name IN (SELECT name FROM roles WHERE role = 'on_device')
    UNION
    SELECT rank FROM ops WHERE depth = 0 GROUP BY rank, track
    HAVING bool_and(name IN (SELECT name FROM roles WHERE role = 'autograd'))
)
SELECT DISTINCT rank FROM ops WHERE rank NOT IN (FROM others)
