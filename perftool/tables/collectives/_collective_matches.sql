-- The calls on several ranks that belong to the same collective. These are the n-th calls of a kind within a step, if
-- all ranks made the same number of calls of that kind in the step. A kind is a name, a process group and a size. A
-- send and its receive are matched by their two ranks.
--
-- needs: collectives, steps
-- empty without: collectives
-- column match: BIGINT, identifies the collective
-- column rank: INTEGER, distributed rank
-- column step: INTEGER, number of the step; NULL when the recording has no steps
-- column side: VARCHAR, 'device' or 'host'
-- column group_name: VARCHAR, process group, when recorded
-- column members: VARCHAR, ranks of the group, when recorded
-- column group_size: BIGINT, number of ranks in the group, when recorded
-- column name: VARCHAR, operation
-- column operation: VARCHAR, collectives.operation
-- column bytes: BIGINT, bytes sent by the rank, when recorded; NULL in an all-to-all
-- column ends_together: BOOLEAN, whether no rank can leave the collective before all have arrived
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, duration in ns
-- column end: BIGINT, end in ns
-- column track: BIGINT, stream on which the collective ran
-- column ready: BIGINT, collectives.ready
-- column overlapped_ns: BIGINT, collectives.overlapped_ns
-- column sends: INTEGER, for a send and its receive: 1 on the sending rank, 2 on the receiving one; else 0
WITH begun AS (
    -- A collective belongs to the step that launched it: it may begin before the device has finished the previous step.
    SELECT *, called IS NOT NULL AS launching, coalesce(called, ts) AS begun FROM collectives
    -- The first collectives of a stream have no recorded launch if they were launched before the recording. These are
    -- left out.
    QUALIFY called IS NOT NULL OR count(called) OVER (PARTITION BY rank, track) = 0
        OR count(called) OVER (PARTITION BY rank, track ORDER BY ts) > 0
),
spans AS (
    SELECT rank, step, partial, false AS launching, ts, "end", "end" AS done FROM steps
    UNION ALL SELECT rank, step, partial, true, host_ts, host_end, "end" FROM steps
),
placed AS (
    SELECT c.rank, s.step, c.side, c.group_name, c.ts, c.dur, c."end", c.track, c.ready, c.overlapped_ns, c.operation, c.together,
           c.source IS NOT NULL AS passed, CASE WHEN c.source = c.rank THEN 1 WHEN passed THEN 2 ELSE 0 END AS sends,
           CASE WHEN passed THEN 'send_receive' ELSE c.name END AS name,
           CASE WHEN passed THEN '[' || c.source || ', ' || c.target || ']' ELSE c.members END AS members,
           CASE WHEN passed THEN 2 ELSE c.group_size END AS group_size,
           -- In an all-to-all, sizes may differ by rank.
           CASE WHEN c.operation IS DISTINCT FROM 'all_to_all' THEN c.bytes END AS bytes
    FROM begun AS c ASOF JOIN spans AS s ON s.rank = c.rank AND s.launching = c.launching AND c.begun >= s.ts
    -- Sends and receives can be matched only if both ranks are named.
    WHERE (c.begun < s."end" OR c.ts < s.done) AND NOT s.partial AND (c.operation IS DISTINCT FROM 'send_receive' OR c.source IS NOT NULL)
),
numbered AS (
    SELECT *, row_number() OVER (kind ORDER BY ts, "end") AS nth, count(*) OVER kind AS calls
    FROM placed WINDOW kind AS (PARTITION BY rank, step, side, group_name, members, name, bytes)
),
compared AS (
    SELECT *, count(*) OVER place AS ranks, min(calls) OVER place = max(calls) OVER place AS agreed
    FROM numbered WINDOW place AS (PARTITION BY step, side, group_name, members, name, bytes, nth)
)
SELECT dense_rank() OVER (ORDER BY step, side, group_name, members, name, bytes, nth) AS match,
       rank, step, side, group_name, members, group_size, name, operation, bytes,
       together AND coalesce(operation IN ('all_reduce', 'all_gather', 'reduce_scatter', 'all_to_all', 'barrier', 'send_receive'), false) AS ends_together,
       ts, dur, "end", track, ready, overlapped_ns, sends
FROM compared WHERE ranks > 1 AND agreed
