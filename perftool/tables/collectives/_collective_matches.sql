-- Collectives that are the same one on several ranks: the n-th of a kind within a step, where every rank that took part
-- in the step made the same number of calls. Kind: name, process group and size.
--
-- needs: collectives, steps
-- empty without: collectives
-- column match: BIGINT, identifies the collective
-- column rank: INTEGER, distributed rank
-- column step: INTEGER, number of the step; NULL when the recording has no steps
-- column side: VARCHAR, 'device' or 'host'
-- column group_name: VARCHAR, process group, when recorded
-- column members: VARCHAR, its ranks, when recorded
-- column group_size: BIGINT, how many these are, when recorded
-- column name: VARCHAR, operation
-- column operation: VARCHAR, collectives.operation
-- column bytes: BIGINT, bytes sent by the rank, when recorded; NULL in an all-to-all
-- column ends_together: BOOLEAN, no rank can leave it before all have come
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, length in ns
-- column end: BIGINT, end in ns
WITH placed AS (
    SELECT c.rank, s.step, c.side, c.group_name, c.members, c.group_size, c.name, c.ts, c.dur, c."end",
           -- In an all-to-all each rank sends what it has.
           CASE WHEN c.operation IS DISTINCT FROM 'all_to_all' THEN c.bytes END AS bytes, c.operation
    FROM collectives AS c ASOF JOIN steps AS s ON s.rank = c.rank AND c.ts >= s.ts
    -- Sends and receives concern two ranks, not the whole group.
    WHERE c.ts < s."end" AND NOT s.partial AND c.operation IS DISTINCT FROM 'send_receive'
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
       coalesce(operation IN ('all_reduce', 'all_gather', 'reduce_scatter', 'all_to_all', 'barrier'), false) AS ends_together,
       ts, dur, "end"
FROM compared WHERE ranks > 1 AND agreed
