-- The meaning of each mask of _timeline. Which activity takes precedence is decided only here, once per distinct mask.
--
-- needs: _timeline
-- empty without: _timeline
-- column mask: BIGINT, _timeline.mask
-- column computing: BOOLEAN, whether a kernel other than a collective runs
-- column communicating: BOOLEAN, whether a collective runs
-- column device: VARCHAR, activity of the device: kernel, communication, memcpy or memset; NULL while it is idle
-- column host_works: BOOLEAN, whether a feeding thread works rather than waits for the device
-- column loading: BOOLEAN, whether a feeding thread waits for data
-- column compiling: BOOLEAN, whether a feeding thread compiles or waits for a compiler
-- column copying_inputs: BOOLEAN, whether the host copies inputs to the device
-- column part: VARCHAR, part of the breakdown of steps: kernel, memcpy, memset, communication, runtime, dataloader or cpu_op; NULL for other time
-- column cause: VARCHAR, gap_causes.cause if the device is idle
WITH masks AS (SELECT mask, activities(mask) AS active FROM (SELECT DISTINCT mask FROM _timeline))
SELECT mask,
       shows(active, ['compute', 'group_compute', 'cpu_compute']) AS computing,
       shows(active, ['collective', 'group_collective']) AS communicating,
       CASE WHEN computing THEN 'kernel'
            WHEN communicating THEN 'communication'
            WHEN shows(active, ['copy']) THEN 'memcpy'
            WHEN shows(active, ['fill']) THEN 'memset' END AS device,
       shows(active, ['call', 'copy_call', 'fallback', 'graph_build', 'loading', 'op', 'group_op', 'optimizer',
                      'optimizer_op', 'python', 'wrapper'])
       AND NOT shows(active, ['device_wait', 'cpu_compute']) AS host_works,
       shows(active, ['loading']) AS loading,
       shows(active, ['compile']) AS compiling,
       shows(active, ['input_copy']) AS copying_inputs,
       CASE WHEN shows(active, ['compute', 'collective']) THEN 'kernel'
            WHEN shows(active, ['copy']) THEN 'memcpy'
            WHEN shows(active, ['fill']) THEN 'memset'
            WHEN shows(active, ['group_compute', 'group_collective', 'process_group']) THEN 'communication'
            WHEN shows(active, ['other_call', 'call', 'copy_call', 'fallback', 'graph_build']) THEN 'runtime'
            WHEN shows(active, ['other_loading', 'loading']) THEN 'dataloader'
            WHEN shows(active, ['other_op', 'op', 'wrapper', 'group_op', 'optimizer_op', 'cpu_compute']) THEN 'cpu_op' END AS part,
       CASE WHEN shows(active, ['capturing']) THEN 'capture'
            WHEN shows(active, ['recorder']) THEN 'profiler'
            WHEN shows(active, ['submitted_early']) THEN 'queued'
            WHEN shows(active, ['submitted_late']) THEN 'launch_latency'
            WHEN shows(active, ['start_up']) THEN 'start_up'
            WHEN shows(active, ['compile']) THEN 'compile'
            WHEN shows(active, ['fallback']) THEN 'fallback'
            WHEN shows(active, ['loading']) THEN 'dataloader'
            WHEN shows(active, ['group_op']) THEN 'collective'
            WHEN shows(active, ['device_wait']) THEN 'sync'
            WHEN shows(active, ['copy_call']) THEN 'copy'
            WHEN shows(active, ['graph_build']) THEN 'graph_build'
            WHEN shows(active, ['optimizer', 'optimizer_op']) THEN 'optimizer'
            WHEN shows(active, ['call']) THEN 'launch_call'
            WHEN shows(active, ['op']) THEN 'framework_op'
            -- The annotation of an asynchronous collective encloses all host work up to the wait, so the enclosed work
            -- takes precedence.
            WHEN shows(active, ['group_annotation']) THEN 'collective'
            WHEN shows(active, ['saving']) THEN 'checkpoint'
            WHEN shows(active, ['queue_wait']) THEN 'queue'
            WHEN shows(active, ['pipe_wait']) THEN 'pipe'
            WHEN shows(active, ['lock_wait']) THEN 'lock'
            WHEN shows(active, ['sleeping']) THEN 'sleep'
            -- A thread without other activity waits for the thread that reduces the gradients.
            WHEN shows(active, ['group_wait'])
                 AND (shows(active, ['autograd_wait', 'collective_wait']) OR NOT shows(active, ['python', 'wrapper']))
            THEN 'collective'
            WHEN shows(active, ['autograd_wait']) THEN 'autograd'
            WHEN shows(active, ['python', 'wrapper', 'collective_wait']) THEN 'python'
            ELSE 'unknown' END AS cause
FROM masks
