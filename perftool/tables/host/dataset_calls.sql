-- One row per data loader without workers that reads its samples one by one, if stacks were recorded.
--
-- needs: dataloader, slices, roles
-- empty without: roles.role=sample
-- column rank: INTEGER, distributed rank
-- column name: VARCHAR, the iterator (dataloader.name)
-- column batches: BIGINT, number of fetches
-- column samples: BIGINT, number of dataset calls for individual samples during the fetches
-- column total_ns: BIGINT, time of the fetches
-- column own_ns: BIGINT, time of the dataset's calls outside framework ops
WITH inside AS (
    SELECT d.id AS batch, s.track, s.name, s.cat, s.ts, s."end"
    FROM slices AS s ASOF JOIN dataloader AS d ON d.track = s.track AND s.ts >= d.ts
    WHERE s.ts < d."end" AND (s.cat = 'cpu_op' AND s.outermost OR s.name IN (SELECT name FROM roles WHERE role = 'sample'))
),
-- A dataset may call an inner dataset, so only the outermost counts.
datasets AS (
    SELECT batch, arg_max(name, (ns, name)) AS name
    FROM (SELECT batch, name, sum("end" - ts) AS ns FROM inside WHERE cat = 'python_function' GROUP BY ALL) GROUP BY batch
),
calls AS (SELECT i.* FROM inside AS i JOIN datasets AS d USING (batch, name) WHERE i.cat = 'python_function'),
ops AS (
    SELECT c.batch, sum(o."end" - o.ts) AS ns
    FROM (FROM inside WHERE cat = 'cpu_op') AS o ASOF JOIN calls AS c ON c.track = o.track AND o.ts >= c.ts
    WHERE o.ts < c."end" GROUP BY c.batch
),
fetches AS (SELECT batch, count(*) AS samples, sum("end" - ts) AS ns FROM calls GROUP BY batch)
SELECT d.rank, d.name, count(*) AS batches, sum(f.samples)::BIGINT AS samples, sum(d.dur)::BIGINT AS total_ns,
       sum(f.ns - coalesce(o.ns, 0))::BIGINT AS own_ns
FROM dataloader AS d JOIN fetches AS f ON f.batch = d.id LEFT JOIN ops AS o ON o.batch = d.id
GROUP BY d.rank, d.name
