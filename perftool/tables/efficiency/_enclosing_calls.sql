-- The outermost ops around the three largest ops of a rank on a CPU. In the backward pass, these are autograd
-- functions.
--
-- needs: device_ops, launches, ops, windows
-- empty without: device_ops, launches, ops
-- column rank: INTEGER, distributed rank
-- column name: VARCHAR, device_ops.name, one of the three with the most work
-- column call: VARCHAR, name of the outermost op around the work; NULL if there is none
-- column ns: BIGINT, time of the work inside this outermost op
-- column dims: VARCHAR, the inputs that account for most of this work: both factors of a matmul; for other ops, the first input
WITH work AS (
    SELECT d.rank, d.name, d.dur, d.id, l.track, l.ts,
           -- The first input of addmm is the bias.
           CASE WHEN regexp_matches(i.name, '^aten::_?(b?add)b?(mm|mv)_?') THEN (i.input_dims->>'$[1]') || ' x ' || (i.input_dims->>'$[2]')
                WHEN regexp_matches(i.name, '^aten::b?mm$') THEN (i.input_dims->>'$[0]') || ' x ' || (i.input_dims->>'$[1]')
                ELSE i.input_dims->>'$[0]' END AS dims
    FROM (FROM launches WHERE own_work) AS l JOIN device_ops AS d ON d.launch = l.id JOIN ops AS i ON i.id = d.op
    JOIN windows AS w ON w.rank = d.rank AND d.ts >= w.ts AND d.ts < w."end" WHERE d.valid
),
largest AS (
    SELECT rank, name FROM work GROUP BY rank, name
    QUALIFY row_number() OVER (PARTITION BY rank ORDER BY sum(dur) DESC, name) <= 3
),
outer_ops AS (
    SELECT o.track, o.name, o.ts, o."end" FROM ops AS o WHERE o.outermost AND EXISTS (FROM largest)
)
SELECT rank, name, call, sum(ns)::BIGINT AS ns, arg_max(dims, (ns, dims)) AS dims
FROM (
    SELECT w.rank, w.name, o.name AS call, w.dims, sum(w.dur) AS ns
    FROM work AS w SEMI JOIN largest AS l ON l.rank = w.rank AND l.name = w.name
    ASOF LEFT JOIN outer_ops AS o ON o.track = w.track AND w.ts >= o.ts
    GROUP BY w.rank, w.name, o.name, w.dims
)
GROUP BY rank, name, call
