-- The meaning of each mask of _timeline. All decisions on which activity takes precedence are made here, once per
-- distinct mask.
--
-- needs: _timeline
-- empty without: _timeline
-- column mask: BIGINT, _timeline.mask
-- column computing: BOOLEAN, whether a kernel other than a collective runs
-- column communicating: BOOLEAN, whether a collective runs
-- column device: VARCHAR, activity of the device: kernel, communication, memcpy or memset; NULL while it is idle
-- column host_works: BOOLEAN, whether a feeding thread works instead of waiting for the device
-- column loading: BOOLEAN, whether a feeding thread waits for data
-- column compiling: BOOLEAN, whether a feeding thread compiles or waits for a compiler
-- column copying_inputs: BOOLEAN, whether the host copies inputs to the device
-- column part: VARCHAR, part of the breakdown of steps: kernel, memcpy, memset, communication, runtime, dataloader or cpu_op; NULL for the rest
-- column cause: VARCHAR, gap_causes.cause if the device is idle
WITH masks AS (SELECT DISTINCT mask FROM _timeline)
SELECT mask,
       shows(mask, ['compute', 'group_compute', 'cpu_compute']) AS computing,
       shows(mask, ['collective', 'group_collective']) AS communicating,
       CASE WHEN computing THEN 'kernel'
            WHEN communicating THEN 'communication'
            WHEN shows(mask, ['copy']) THEN 'memcpy'
            WHEN shows(mask, ['fill']) THEN 'memset' END AS device,
       shows(mask, ['call', 'copy_call', 'fallback', 'graph_build', 'loading', 'op', 'group_op', 'optimizer',
                    'optimizer_op', 'python', 'wrapper'])
       AND NOT shows(mask, ['device_wait', 'cpu_compute']) AS host_works,
       shows(mask, ['loading']) AS loading,
       shows(mask, ['compile']) AS compiling,
       shows(mask, ['input_copy']) AS copying_inputs,
       CASE WHEN shows(mask, ['compute', 'collective']) THEN 'kernel'
            WHEN shows(mask, ['copy']) THEN 'memcpy'
            WHEN shows(mask, ['fill']) THEN 'memset'
            WHEN shows(mask, ['group_compute', 'group_collective', 'process_group']) THEN 'communication'
            WHEN shows(mask, ['other_call', 'call', 'copy_call', 'fallback', 'graph_build']) THEN 'runtime'
            WHEN shows(mask, ['other_loading', 'loading']) THEN 'dataloader'
            WHEN shows(mask, ['other_op', 'op', 'wrapper', 'group_op', 'optimizer_op', 'cpu_compute']) THEN 'cpu_op' END AS part,
       CASE WHEN shows(mask, ['capturing']) THEN 'capture'
            WHEN shows(mask, ['recorder']) THEN 'profiler'
            WHEN shows(mask, ['submitted_early']) THEN 'queued'
            WHEN shows(mask, ['submitted_late']) THEN 'launch_latency'
            WHEN shows(mask, ['start_up']) THEN 'start_up'
            WHEN shows(mask, ['compile']) THEN 'compile'
            WHEN shows(mask, ['fallback']) THEN 'fallback'
            WHEN shows(mask, ['loading']) THEN 'dataloader'
            WHEN shows(mask, ['group_op']) THEN 'collective'
            WHEN shows(mask, ['device_wait']) THEN 'sync'
            WHEN shows(mask, ['copy_call']) THEN 'copy'
            WHEN shows(mask, ['graph_build']) THEN 'graph_build'
            WHEN shows(mask, ['optimizer', 'optimizer_op']) THEN 'optimizer'
            WHEN shows(mask, ['call']) THEN 'launch_call'
            WHEN shows(mask, ['op']) THEN 'framework_op'
            -- The annotation of an asynchronous collective contains all host work until the wait for it.
            WHEN shows(mask, ['group_annotation']) THEN 'collective'
            WHEN shows(mask, ['saving']) THEN 'checkpoint'
            WHEN shows(mask, ['queue_wait']) THEN 'queue'
            WHEN shows(mask, ['pipe_wait']) THEN 'pipe'
            WHEN shows(mask, ['lock_wait']) THEN 'lock'
            WHEN shows(mask, ['sleeping']) THEN 'sleep'
            -- A thread that shows no other activity waits for the thread that reduces the gradients.
            WHEN shows(mask, ['group_wait'])
                 AND (shows(mask, ['autograd_wait', 'collective_wait']) OR NOT shows(mask, ['python', 'wrapper']))
            THEN 'collective'
            WHEN shows(mask, ['autograd_wait']) THEN 'autograd'
            WHEN shows(mask, ['python', 'wrapper', 'collective_wait']) THEN 'python'
            ELSE 'unknown' END AS cause
FROM masks
