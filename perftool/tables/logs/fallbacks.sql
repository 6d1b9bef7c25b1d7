-- One row per operator that ran on the CPU because the device could not run it. Logs, metrics and the trace report the
-- same executions, so their counts are compared, not added.
--
-- needs: _log_fallbacks, fallback_calls, steps
-- empty without: _log_fallbacks or fallback_calls
-- column op: VARCHAR, operator, with overload when known (aten::index.Tensor_out)
-- column base: VARCHAR, operator without overload
-- column dtypes: VARCHAR, argument types, from log lines about individual calls
-- column count: BIGINT, number of executions on the CPU: in the whole run if logs or metrics report them, else in the trace
-- column traced: BIGINT, number of executions in the trace
-- column time_ns: BIGINT, time of the executions in the trace, including copies and waiting; NULL if there is no trace
-- column registered: BOOLEAN, whether release 1.19 of the bridge has a kernel for the operator, with any overload, in place or not; NULL when only the trace shows it
-- column source: VARCHAR, what reports the executions: table (printed at exit), metrics (the metrics file), call, refusal (of an argument) or graph_cut (a line of the log), or trace; several joined by +
-- column rank: INTEGER, distributed rank of the trace that shows the operator
-- column step: INTEGER, step of the longest execution in the trace
-- column ts: BIGINT, start of the longest execution in ns
-- column dur: BIGINT, duration of the longest execution in ns
WITH traced AS (
    SELECT base, count(*) AS traced, sum("end" - ts)::BIGINT AS time_ns, first(rank ORDER BY "end" - ts DESC, ts, rank) AS rank,
           first(ts ORDER BY "end" - ts DESC, ts, rank) AS ts, max("end" - ts) AS dur, bool_or(certain) AS certain
    FROM fallback_calls GROUP BY base
),
logged AS (
    SELECT base, max(op) AS op, max(dtypes) AS dtypes, sum(count)::BIGINT AS count, max(source) AS source,
           bool_or(registered) AS registered
    FROM _log_fallbacks GROUP BY base, op
),
-- The trace does not name overloads, so the traced time is assigned to the operator's first row.
joined AS (
    SELECT coalesce(l.op, t.base) AS op, coalesce(l.base, t.base) AS base, l.dtypes, coalesce(l.count, t.traced) AS count,
           t.traced, t.time_ns, concat_ws('+', l.source, CASE WHEN t.certain THEN 'trace' END) AS source,
           t.rank, t.ts, t.dur, l.registered
    FROM (SELECT *, row_number() OVER (PARTITION BY base ORDER BY count DESC, op) AS place FROM logged) AS l
    FULL JOIN traced AS t ON t.base = l.base AND l.place = 1
    WHERE l.base IS NOT NULL OR t.certain
)
SELECT j.op, j.base, j.dtypes, j.count, j.traced, j.time_ns, j.registered, j.source, j.rank, s.step, j.ts, j.dur
FROM joined AS j
ASOF LEFT JOIN steps AS s ON s.rank = j.rank AND j.ts >= s.ts
ORDER BY j.time_ns DESC NULLS LAST, j.count DESC, j.op
