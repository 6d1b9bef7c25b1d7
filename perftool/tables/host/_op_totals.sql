-- Self time of each op of a rank, summed over its calls that are at least partly inside the window. Step annotations do
-- not count as ops.
--
-- needs: ops, windows
-- empty without: ops
-- column rank: INTEGER, distributed rank
-- column name: VARCHAR, name of the op
-- column total_ns: BIGINT, self time in ns
-- column count: BIGINT, number of calls
SELECT o.rank, o.name, sum(o.self_ns)::BIGINT AS total_ns, count(*) AS count
FROM ops AS o JOIN windows AS w ON w.rank = o.rank AND o.ts < w."end" AND o."end" > w.ts
WHERE NOT is_step(o.name)
GROUP BY o.rank, o.name
