-- Time of each rank in each complete step by activity, to explain why a rank is last at collectives.
--
-- needs: steps, _rank_stretches
-- empty without: steps
-- column rank: INTEGER, distributed rank
-- column step: INTEGER, number of the step
-- column compute_ns: BIGINT, time while a kernel other than a collective runs
-- column copy_ns: BIGINT, time while the device copies or fills without computing, or is idle during a copy call
-- column dataloader_ns: BIGINT, time that the device is idle while the host waits for data
-- column compile_ns: BIGINT, time that the device is idle while the host compiles
-- column host_ns: BIGINT, time that the device is idle while the host does anything but wait for the device
SELECT s.rank, s.step, coalesce(sum(COLUMNS(['compute_ns', 'copy_ns', 'dataloader_ns', 'compile_ns', 'host_ns'])), 0)::BIGINT
FROM steps AS s LEFT JOIN _rank_stretches AS w ON w.rank = s.rank AND w.ts >= s.ts AND w.ts < s."end"
WHERE s.step IS NOT NULL AND NOT s.partial
GROUP BY s.rank, s.step
ORDER BY s.rank, s.step
