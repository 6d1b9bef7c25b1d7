-- The op that a function of the backward pass differentiates: the last op with the function's sequence number.
--
-- needs: ops
-- empty without: ops.sequence
-- column rank: INTEGER, distributed rank
-- column function: BIGINT, ops.id of the function
-- column track: BIGINT, track of the function
-- column ts: BIGINT, start of the function in ns
-- column end: BIGINT, end of the function in ns
-- column op: BIGINT, ops.id of the op; NULL if it was not recorded
-- column op_track: BIGINT, track of the op
-- column op_ts: BIGINT, start of the op in ns
-- column op_end: BIGINT, end of the op in ns
WITH functions AS (
    SELECT rank, id, track, ts, "end", sequence FROM ops
    WHERE sequence >= 0 AND starts_with(name, 'autograd::engine::evaluate_function')
),
forwards AS (
    SELECT rank, sequence, id, track, ts, "end" FROM ops
    WHERE sequence >= 0 AND coalesce(fwd_thread, 0) = 0 AND NOT starts_with(name, 'autograd::engine::evaluate_function')
)
SELECT f.rank, f.id AS function, f.track, f.ts, f."end", o.id AS op, o.track AS op_track, o.ts AS op_ts, o."end" AS op_end
FROM functions AS f ASOF LEFT JOIN forwards AS o ON o.rank = f.rank AND o.sequence = f.sequence AND f.ts >= o.ts
