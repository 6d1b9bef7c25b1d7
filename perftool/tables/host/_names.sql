-- What the name of a host slice says, decided once per name instead of once per slice.
--
-- needs: slices
-- column name: VARCHAR, slices.name
-- column cat: VARCHAR, slices.cat
-- column waits: BOOLEAN, a runtime call that returns when the device is done
-- column copies: BOOLEAN, a runtime call that moves data
-- column collective: BOOLEAN, an operation of a process group on the host
-- column compiles: VARCHAR, for the compilation of a graph or a part of it: torch.compile or trace (Gaudi)
-- column elsewhere: INTEGER, its class in _timeline on threads that do not feed the device; NULL for none
-- column feeding: INTEGER, its class in _timeline on threads that do; NULL for none
WITH names AS (
    SELECT DISTINCT name, cat FROM slices
    WHERE side = 'host' AND cat IN ('cpu_op', 'user_annotation', 'runtime', 'python_function')
)
SELECT name, cat,
       cat = 'runtime' AND (regexp_matches(name, '(Stream|Device|Event|Ctx|Context)Synchronize')
           OR name IN ('JoinPendingLaunchThread', 'cudaMemcpy', 'hipMemcpy', 'hipMemcpyWithStream', 'urEventWait', 'urQueueFinish')) AS waits,
       cat = 'runtime' AND regexp_matches(name, 'memcpy|MemCopy|copy_hpu_lazy', 'i') AS copies,
       cat IN ('cpu_op', 'user_annotation') AND is_host_collective(name) AS collective,
       CASE WHEN cat = 'cpu_op' AND (name IN ('dynamo', 'entire_frame_compile', 'entire_backward_compile', 'compile_attempt_0')
                OR regexp_matches(name, '^(_compile\.compile_inner|backward\._backward_impl) \(dynamo_timed\)'))
                THEN 'torch.compile'
            WHEN cat = 'runtime' AND name IN ('compileGraph', 'synGraphCompile', 'CompileSynapse', 'CompileGraphWithRange',
                                              'BuildSynapseGraph', 'add_new_recipe') THEN 'trace' END AS compiles,
       CASE WHEN starts_with(name, 'ProfilerStep#') THEN NULL
            WHEN cat IN ('cpu_op', 'user_annotation') AND is_dataloader(name) THEN 8
            WHEN collective THEN 6
            WHEN cat = 'runtime' THEN 7
            WHEN cat = 'cpu_op' THEN 9 END AS elsewhere,
       CASE WHEN starts_with(name, 'ProfilerStep#') THEN NULL
            WHEN elsewhere = 8 THEN 14
            WHEN cat = 'runtime' THEN
                CASE WHEN name = 'cpu_fallback' THEN 12
                     WHEN copies THEN 11
                     WHEN regexp_matches(name, '^(SyncTensorsGraphInternal|SyncLiveTensorsGraph|StepMarker|RunPostOrder|CollectSyncTensors)')
                         THEN 13
                     ELSE 10 END
            WHEN cat IN ('cpu_op', 'user_annotation')
                 AND regexp_matches(name, '^(c10d::|nccl:|gloo:|hccl:|record_param_comms)')
                THEN CASE WHEN cat = 'cpu_op' AND NOT collective THEN 16 ELSE 19 END
            WHEN starts_with(name, 'Optimizer.step#') OR starts_with(name, 'Optimizer.zero_grad#')
                THEN CASE WHEN cat = 'cpu_op' THEN 25 ELSE 17 END
            WHEN cat = 'cpu_op' THEN 15
            WHEN cat = 'python_function' THEN 18 END AS feeding
FROM names
