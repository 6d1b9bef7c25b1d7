-- The meaning of slice names, evaluated once per name instead of once per slice.
--
-- needs: slices, _vocabulary
-- empty without: slices
-- column name: VARCHAR, slices.name
-- column cat: VARCHAR, slices.cat
-- column roles: VARCHAR[], roles of the name in the vendor files
-- column waits: BOOLEAN, whether this is a runtime call that returns when the device is done
-- column copies: BOOLEAN, whether this is a runtime call that moves data
-- column collective: BOOLEAN, whether this is an operation of a process group on the host
-- column annotates: BOOLEAN, whether this is an annotation of the program; its only role may be the backward pass
-- column compiles: VARCHAR, source of a compilation or of a part of one: torch.compile or trace (Gaudi); NULL for other names
-- column elsewhere: activity, activity (_timeline) that a slice with this name shows on threads that do not feed the device; NULL if it shows none
-- column feeding: activity, activity (_timeline) that a slice with this name shows on threads that feed the device; NULL if it shows none
-- column drawn: VARCHAR, kind of bar for such a slice in charts of a host thread: sync, dataloader, graph_build, fallback, memcpy, runtime, communication, optimizer, cpu_op or other
-- column direction: VARCHAR, direction of a copy on the device: host_to_device, device_to_host, device_to_device or peer
WITH names AS (
    SELECT DISTINCT name, cat FROM slices
    WHERE cat IN ('cpu_op', 'user_annotation', 'runtime', 'python_function', 'overhead', 'kernel', 'memcpy', 'memset')
),
subjects AS (
    SELECT name, cat, lower(name) AS lowered,
           CASE WHEN cat IN ('cpu_op', 'user_annotation') THEN 'op' WHEN cat = 'python_function' THEN 'frame' ELSE cat END AS subject
    FROM names WHERE cat <> 'memset'
),
name_roles AS (
    SELECT s.name, s.cat, list(DISTINCT v.role ORDER BY v.role) AS roles
    FROM subjects AS s JOIN _vocabulary AS v ON v.subject = s.subject AND s.lowered GLOB v.pattern
    GROUP BY s.name, s.cat
),
known AS (SELECT n.name, n.cat, coalesce(s.roles, []) AS roles FROM names AS n LEFT JOIN name_roles AS s USING (name, cat)),
-- This is a separate query because DuckDB would repeat the expression for feeding wherever the same query refers to
-- that column.
active AS (
    SELECT name, cat, roles,
           cat = 'runtime' AND list_has_any(roles, ['wait', 'blocking_copy']) AS waits,
           cat = 'runtime' AND list_contains(roles, 'copy') AS copies,
           cat IN ('cpu_op', 'user_annotation') AND list_contains(roles, 'collective') AS collective,
           cat = 'user_annotation' AND list_has_all(['backward'], roles) AND NOT is_step(name) AS annotates,
           CASE WHEN NOT list_contains(roles, 'compile') THEN NULL
                WHEN cat = 'cpu_op' THEN 'torch.compile' WHEN cat = 'runtime' THEN 'trace' END AS compiles,
           (CASE WHEN is_step(name) THEN NULL
                 WHEN list_contains(roles, 'dataloader') THEN 'other_loading'
                 WHEN collective THEN 'process_group'
                 WHEN cat = 'runtime' THEN 'other_call'
                 WHEN cat = 'cpu_op' THEN 'other_op' END)::activity AS elsewhere,
           (CASE WHEN is_step(name) THEN NULL
                 WHEN list_contains(roles, 'dataloader') THEN 'loading'
                 WHEN cat = 'runtime' THEN
                     CASE WHEN list_contains(roles, 'fallback') THEN 'fallback'
                          WHEN copies THEN 'copy_call'
                          WHEN list_contains(roles, 'graph_build') THEN 'graph_build'
                          ELSE 'call' END
                 WHEN list_contains(roles, 'process_group')
                     THEN CASE WHEN cat = 'cpu_op' AND NOT collective THEN 'group_op' ELSE 'group_annotation' END
                 WHEN list_contains(roles, 'optimizer') THEN CASE WHEN cat = 'cpu_op' THEN 'optimizer_op' ELSE 'optimizer' END
                 WHEN cat = 'cpu_op' THEN CASE WHEN list_contains(roles, 'wrapper') THEN 'wrapper' ELSE 'op' END
                 WHEN cat = 'python_function' THEN
                     CASE WHEN list_contains(roles, 'queue_wait') THEN 'queue_wait'
                          WHEN list_contains(roles, 'pipe_wait') THEN 'pipe_wait'
                          WHEN list_contains(roles, 'lock_wait') THEN 'lock_wait'
                          WHEN list_contains(roles, 'sleep') THEN 'sleeping'
                          WHEN list_contains(roles, 'autograd_wait') THEN 'autograd_wait'
                          WHEN list_contains(roles, 'collective_wait') THEN 'collective_wait'
                          ELSE 'python' END END)::activity AS feeding
    FROM known
)
SELECT *,
       CASE WHEN waits THEN 'sync'
            ELSE CASE feeding
                     WHEN 'loading' THEN 'dataloader' WHEN 'graph_build' THEN 'graph_build' WHEN 'fallback' THEN 'fallback'
                     WHEN 'copy_call' THEN 'memcpy' WHEN 'call' THEN 'runtime' WHEN 'group_op' THEN 'communication'
                     WHEN 'group_annotation' THEN 'communication' WHEN 'optimizer' THEN 'optimizer'
                     WHEN 'optimizer_op' THEN 'optimizer' WHEN 'op' THEN 'cpu_op' ELSE 'other' END END AS drawn,
       CASE WHEN list_contains(roles, 'internal') THEN NULL
            WHEN list_contains(roles, 'host_to_device') THEN 'host_to_device'
            WHEN list_contains(roles, 'device_to_host') THEN 'device_to_host'
            WHEN list_contains(roles, 'peer') THEN 'peer'
            WHEN list_contains(roles, 'device_to_device') THEN 'device_to_device' END AS direction
FROM active
