-- What the name of a host slice says, decided once per name instead of once per slice.
--
-- needs: slices
-- column name: VARCHAR, slices.name
-- column cat: VARCHAR, slices.cat
-- column waits: BOOLEAN, a runtime call that returns when the device is done
-- column copies: BOOLEAN, a runtime call that moves data
-- column role: INTEGER, class in the breakdown of a step (steps): 3 communication, 4 runtime, 5 dataloader, 6 cpu_op; NULL for none
-- column activity: INTEGER, class that explains an idle device (_host_activity); NULL for none
WITH names AS (
    SELECT DISTINCT name, cat FROM slices
    WHERE side = 'host' AND cat IN ('cpu_op', 'user_annotation', 'runtime', 'python_function')
)
SELECT name, cat,
       cat = 'runtime' AND (regexp_matches(name, '(Stream|Device|Event|Ctx|Context)Synchronize')
           OR name IN ('JoinPendingLaunchThread', 'cudaMemcpy', 'hipMemcpy', 'hipMemcpyWithStream', 'urEventWait', 'urQueueFinish')) AS waits,
       cat = 'runtime' AND regexp_matches(name, 'memcpy|MemCopy|copy_hpu_lazy', 'i') AS copies,
       CASE WHEN starts_with(name, 'ProfilerStep#') THEN NULL
            WHEN cat IN ('cpu_op', 'user_annotation') AND is_dataloader(name) THEN 5
            WHEN cat IN ('cpu_op', 'user_annotation') AND is_host_collective(name) THEN 3
            WHEN cat = 'runtime' THEN 4
            WHEN cat = 'cpu_op' THEN 6 END AS role,
       CASE WHEN starts_with(name, 'ProfilerStep#') THEN NULL
            WHEN name = 'cpu_fallback' THEN 1
            WHEN role = 5 THEN 2
            WHEN cat IN ('cpu_op', 'user_annotation')
                 AND regexp_matches(name, '^(c10d::|nccl:|gloo:|hccl:|record_param_comms)') THEN 3
            WHEN copies THEN 5
            WHEN regexp_matches(name, '^(SyncTensorsGraphInternal|SyncLiveTensorsGraph|StepMarker|RunPostOrder|CollectSyncTensors)') THEN 6
            WHEN starts_with(name, 'Optimizer.step#') OR starts_with(name, 'Optimizer.zero_grad#') THEN 7
            WHEN cat = 'runtime' THEN 8
            WHEN cat = 'cpu_op' THEN 9
            WHEN cat = 'python_function' THEN 10 END AS activity
FROM names
