-- Time of each rank by phase of its recording.
--
-- needs: phases
-- empty without: phases
-- column rank: INTEGER, distributed rank
-- column phase: VARCHAR, phases.phase
-- column total_ns: BIGINT, time in the phase
-- column count: BIGINT, number of stretches of the phase
-- column evidence: VARCHAR, evidence of the longest stretch with evidence
SELECT rank, phase, sum(dur)::BIGINT AS total_ns, count(*) AS count,
       arg_min(evidence, (-dur, ts)) FILTER (evidence IS NOT NULL) AS evidence
FROM phases GROUP BY rank, phase
