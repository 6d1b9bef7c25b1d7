-- Self time of each rank by op, for ops of which at least a part is inside the window. Step annotations do not count as
-- ops.
--
-- needs: ops, windows
-- empty without: ops
-- column rank: INTEGER, distributed rank
-- column name: VARCHAR, name of the op
-- column total_ns: BIGINT, self time
-- column count: BIGINT, calls
SELECT o.rank, o.name, sum(o.self_ns)::BIGINT AS total_ns, count(*) AS count
FROM ops AS o JOIN windows AS w ON w.rank = o.rank AND o.ts < w."end" AND o."end" > w.ts
WHERE NOT is_step(o.name)
GROUP BY o.rank, o.name
