-- One row per framework op on the host.
--
-- needs: slices
-- empty without: slices
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, host track
-- column name: VARCHAR, op name
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, duration in ns
-- column end: BIGINT, end in ns
-- column depth: INTEGER, nesting depth on its track
-- column parent: BIGINT, enclosing slice
-- column outermost: BOOLEAN, whether no other op directly contains the op; profiler steps do not count
-- column self_ns: BIGINT, duration minus that of the slices directly inside the op
-- column input_dims: VARCHAR, shapes of the inputs as JSON, when recorded
-- column input_types: VARCHAR, types of the inputs as JSON, when recorded
-- column concrete_inputs: VARCHAR, scalar arguments as JSON, when recorded
-- column external_id: BIGINT, id by which runtime calls and kernels refer to the op
-- column sequence: BIGINT, number that links a forward op to its backward op
-- column fwd_thread: BIGINT, for backward ops: thread of the forward op
-- column call_stack: VARCHAR, Python call stack, when recorded
WITH inner_time AS (
    SELECT parent AS id, sum(dur) AS inner_ns FROM slices WHERE parent IS NOT NULL GROUP BY parent
),
facts AS (
    SELECT rowid AS id, json_extract_string(args, [
        '$."Input Dims"', '$."Input dims"', '$."Input type"', '$."Concrete Inputs"', '$."External id"',
        '$."external id"', '$."Sequence number"', '$."Fwd thread id"', '$."Call stack"']) AS a
    FROM raw
)
SELECT s.id, s.rank, s.track, s.name, s.ts, s.dur, s."end", s.depth, s.parent, s.outermost,
       greatest(s.dur - coalesce(i.inner_ns, 0), 0)::BIGINT AS self_ns,
       inputs_json(coalesce(a[1], a[2])) AS input_dims, inputs_json(a[3]) AS input_types, inputs_json(a[4]) AS concrete_inputs,
       try_cast(coalesce(a[5], a[6]) AS BIGINT) AS external_id, try_cast(a[7] AS BIGINT) AS sequence,
       try_cast(a[8] AS BIGINT) AS fwd_thread, a[9] AS call_stack
FROM slices AS s
LEFT JOIN inner_time AS i USING (id)
LEFT JOIN facts AS f USING (id)
WHERE s.cat = 'cpu_op' AND s.side = 'host'
