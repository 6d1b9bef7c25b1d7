-- One row per rank with machines.wall_ns: the load of its machine during the recording.
--
-- A machine is overloaded if a thread of the run was ready but had no core for more than 10 % of the recorded time, or
-- if a hypervisor took the cores for that long. Steps then take longer than on an otherwise idle machine, so no gain is
-- predicted.
--
-- needs: machines
-- column rank: INTEGER, distributed rank
-- column cores: DOUBLE, number of cores that the process may use
-- column step_ns: BIGINT, median step time during the recording
-- column quiet_step_ns: BIGINT, median step time before the recording, without the profiler
-- column wall_ns: BIGINT, duration of the recording
-- column own_ns: BIGINT, CPU time of the process and its data-loader workers
-- column busy_ns: BIGINT, time while the allowed cores ran any process, summed over cores
-- column overload_ns: BIGINT, time that a thread was ready to run but had no core, or that a hypervisor took the cores, during the recording; NULL when unknown
-- column overloaded: BOOLEAN, whether overload_ns is more than 10 % of wall_ns; false when unknown
WITH waits AS (
    SELECT rank, cores, step_ns, quiet_step_ns, wall_ns, own_ns, busy_ns,
           greatest(delay_ns, stolen_ns / cores)::BIGINT AS overload_ns
    FROM machines WHERE wall_ns > 0
)
SELECT *, coalesce(overload_ns > 0.1 * wall_ns, false) AS overloaded FROM waits ORDER BY rank
