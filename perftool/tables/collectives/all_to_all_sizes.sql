-- One row per pair of ranks and process group with all-to-alls that record split sizes (all_to_all_single): the bytes
-- that one rank sends to the other. Groups of more than 30 ranks are missing, because PyTorch truncates their lists of
-- ranks.
--
-- needs: collectives
-- empty without: collectives
-- column rank: INTEGER, distributed rank
-- column peer: INTEGER, rank that this rank exchanges data with, or this rank itself
-- column group_name: VARCHAR, process group, when recorded
-- column calls: BIGINT, number of all-to-alls with split sizes that the rank called in the group
-- column sent: BIGINT, bytes that the rank sends to the peer in all calls; NULL when the data type of a call is not recorded
-- column received: BIGINT, bytes that the rank receives from the peer
WITH stated AS (
    SELECT c.rank, c.group_name, try_cast(list_json(arg(r.args, 'Process Group Ranks')) AS INTEGER[]) AS members,
           try_cast(list_json(arg(r.args, 'In split size')) AS BIGINT[]) AS rows_sent,
           try_cast(list_json(arg(r.args, 'Out split size')) AS BIGINT[]) AS rows_received,
           c.bytes::HUGEINT AS bytes,
           try_cast(c.bytes::HUGEINT // nullif(int_arg(r.args, 'In msg nelems'), 0) * int_arg(r.args, 'Out msg nelems') AS BIGINT)::HUGEINT AS bytes_received
    FROM collectives AS c JOIN raw AS r ON r.rowid = c.id
    WHERE c.operation = 'all_to_all'
),
-- Split sizes are numbers of rows of the first dimension.
pieces AS (
    SELECT rank, group_name, unnest(members) AS peer, unnest(rows_sent) AS n, bytes // greatest(list_sum(rows_sent), 1) AS row_bytes,
           unnest(rows_received) AS m, bytes_received // greatest(list_sum(rows_received), 1) AS received_row_bytes
    FROM stated WHERE len(rows_sent) = len(members) AND len(rows_received) = len(members)
)
SELECT rank, peer, group_name, count(*) AS calls,
       CASE WHEN count(row_bytes) = count(*) THEN try_cast(sum(try_cast(n * row_bytes AS BIGINT)) AS BIGINT) END AS sent,
       CASE WHEN count(received_row_bytes) = count(*) THEN try_cast(sum(try_cast(m * received_row_bytes AS BIGINT)) AS BIGINT) END AS received
FROM pieces GROUP BY rank, peer, group_name
ORDER BY rank, group_name, peer
