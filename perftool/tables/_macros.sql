-- Interval arithmetic that the tables share. Intervals are half-open, [ts, end), in ns; a relation of intervals has the
-- columns rank, class, ts and "end". Classes are small integers; class -1 only marks a boundary.

-- Merges overlapping and touching intervals of a rank and class. A merged interval starts where no earlier interval
-- reaches. It ends at the latest end among the intervals before the next merged one. (Window aggregates with FILTER
-- would be 20 times slower.)
CREATE MACRO interval_union(source) AS TABLE (
    WITH reached AS (
        SELECT rank, class, ts,
               max("end") OVER (PARTITION BY rank, class ORDER BY ts
                                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach,
               max("end") OVER (PARTITION BY rank, class) AS last_end
        FROM query_table(source) WHERE "end" > ts
    )
    SELECT rank, class, ts,
           coalesce(lead(reach) OVER (PARTITION BY rank, class ORDER BY ts), last_end) AS "end"
    FROM reached WHERE reach IS NULL OR ts > reach
);

-- Total length of the union of the intervals of a rank and class, in ns. This is twice as fast as interval_union.
CREATE MACRO interval_lengths(source) AS TABLE (
    WITH reached AS (
        SELECT rank, class, ts, "end",
               max("end") OVER (PARTITION BY rank, class ORDER BY ts
                                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach
        FROM query_table(source) WHERE "end" > ts
    )
    SELECT rank, class, sum(greatest("end" - greatest(ts, coalesce(reach, ts)), 0))::BIGINT AS ns
    FROM reached GROUP BY rank, class
);

-- Cuts time wherever an interval starts or ends. Bit c of the mask is set while class c is active. The intervals of one
-- class must not overlap.
CREATE MACRO interval_sweep(source) AS TABLE (
    WITH edges AS (
        SELECT rank, ts AS t, CASE WHEN class < 0 THEN 0 ELSE 1::BIGINT << class END AS delta FROM query_table(source)
        UNION ALL
        SELECT rank, "end", CASE WHEN class < 0 THEN 0 ELSE -(1::BIGINT << class) END FROM query_table(source)
    ),
    -- The sum includes all edges at the same time. Only the last of these edges starts a stretch of non-zero length.
    stretches AS (
        SELECT rank, t AS ts, lead(t) OVER w AS "end", (sum(delta) OVER w)::BIGINT AS mask
        FROM edges WINDOW w AS (PARTITION BY rank ORDER BY t)
    )
    SELECT rank, ts, "end", mask FROM stretches WHERE "end" > ts
);

-- Finds, in linear time, which intervals of one source are inside which intervals of another on the same lane. Returns
-- a row (outside, inside) of ids for each such pair. Both sources have the columns lane, id, ts and "end". Outside
-- intervals are not empty and never overlap partially, like calls on one thread. So on each lane and nesting level,
-- only the outside interval that started last can still be open. Outside intervals nested more than 32 deep are left
-- out.
CREATE MACRO nested_pairs(insides, outsides) AS TABLE (
    WITH edges AS (
        SELECT lane, id, ts AS t, "end", 1 AS delta FROM query_table(outsides) WHERE "end" > ts
        UNION ALL SELECT lane, id, "end", "end", -1 FROM query_table(outsides) WHERE "end" > ts
    ),
    levels AS (
        SELECT id, delta, sum(delta) OVER (PARTITION BY lane ORDER BY t, delta, "end" DESC, id ROWS UNBOUNDED PRECEDING) AS level
        FROM edges
    ),
    shallow AS (
        SELECT o.*, l.level FROM query_table(outsides) AS o JOIN levels AS l ON l.id = o.id AND l.delta = 1 AND l.level <= 32
    ),
    starts AS (SELECT lane, ts, max(level)::BIGINT AS level FROM shallow GROUP BY lane, ts),
    nested AS (
        SELECT s.lane, s.ts, o.id, o."end"
        FROM (SELECT lane, ts, unnest(range(1, level + 1)) AS level FROM starts) AS s
        ASOF JOIN shallow AS o ON o.lane = s.lane AND o.level = s.level AND s.ts >= o.ts
        WHERE o."end" >= s.ts
    )
    SELECT n.id AS outside, i.id AS inside
    FROM query_table(insides) AS i
    ASOF JOIN starts AS s ON s.lane = i.lane AND i.ts >= s.ts
    JOIN nested AS n ON n.lane = s.lane AND n.ts = s.ts
    WHERE i."end" <= n."end"
);

CREATE MACRO arg(args, key) AS json_extract_string(args, '$."' || key || '"');
CREATE MACRO int_arg(args, key) AS try_cast(json_extract_string(args, '$."' || key || '"') AS BIGINT);

-- A size in bytes or elements; NULL above 2**44 (16 TiB). No real size is that large, and sums of larger sizes could
-- overflow 64 bits.
CREATE MACRO size_of(value) AS CASE WHEN abs(try_cast(value AS HUGEINT)) <= 17592186044416 THEN try_cast(value AS BIGINT) END;

-- Truncates a name to at most this many characters and marks the place. The mark shows --redact where a name may end in
-- the middle of a secret.
CREATE MACRO cut_text(name, most) AS CASE WHEN length(name) > most THEN left(name, most - 1) || '…' ELSE name END;

-- The start of a name in the arguments of an event. It must be short, because tables repeat it for many other events.
CREATE MACRO short_name(value) AS cut_text(value, 1000);

-- A list as JSON; NULL for any other value, because JSON functions would fail on it.
CREATE MACRO list_json(value) AS CASE WHEN starts_with(value, '[') AND json_valid(value) THEN value END;
-- Inputs of an op as JSON; NULL for other values. Long texts also become NULL, because queries may copy them for each
-- kernel of the op. The longest inputs in our recordings are 3 kB long.
CREATE MACRO longest_inputs() AS 32768;
CREATE MACRO inputs_json(value) AS CASE WHEN strlen(value) <= longest_inputs() THEN list_json(value) END;

-- The shapes of all tensors in the inputs of an op, also of those in a list. The inputs must contain no spaces.
CREATE MACRO input_shapes(dims) AS list_transform(regexp_extract_all(dims, '\[[0-9,]+\]'), lambda one: try_cast(one AS BIGINT[]));

-- Shortens a list of more than 30 ranks to the first 29 and the last, as PyTorch does.
CREATE MACRO listed_ranks(value) AS
    CASE WHEN length(value) > 80 THEN regexp_replace(value, '^(\[(?:\s*\d+,){29})(?:\s*\d+,)+(\s*\d+\])$', '\1 ...,\2') ELSE value END;

-- Tolerance between the clocks of host and device. Work may seem to start up to this long before its call, and idle
-- time caused by a wait may seem to begin up to this long after the wait.
CREATE MACRO clock_slack_ns() AS 20000;

-- Submitted work normally starts within microseconds. A delay longer than this has a cause other than the launch
-- itself.
CREATE MACRO handover_ns() AS 1000000;

-- Whether the thread computes during idle time of this cause, so that it needs a core.
CREATE MACRO needs_core(cause) AS cause IN ('python', 'optimizer', 'framework_op');

-- Whether a length is possible. The limit, 2**53 ns, is 104 days; sums of longer times could overflow 64 bits. The
-- maker of _pairs lowers the limit if the sum of all lengths would overflow.
CREATE MACRO is_length(ns) AS ns BETWEEN 0 AND 9007199254740992;

-- Whether this is the name of a profiler step.
CREATE MACRO is_step(name) AS starts_with(name, 'ProfilerStep#');

-- Activities of a device or of the host, explained in _timeline. The class of an activity is its position in this list.
CREATE TYPE activity AS ENUM (
    'compute', 'collective', 'group_compute', 'group_collective', 'copy', 'fill',
    'process_group', 'other_call', 'other_loading', 'other_op', 'call', 'copy_call',
    'fallback', 'graph_build', 'loading', 'op', 'group_op', 'optimizer',
    'python', 'group_annotation', 'device_wait', 'compile', 'submitted_late', 'submitted_early',
    'input_copy', 'optimizer_op', 'start_up', 'wrapper', 'capturing', 'recorder', 'saving',
    'queue_wait', 'pipe_wait', 'lock_wait', 'sleeping', 'autograd_wait', 'cpu_compute', 'group_wait',
    'collective_wait'
);
CREATE MACRO class_of(doing) AS enum_code(doing::activity)::INTEGER;

-- The activities in a mask of interval_sweep.
CREATE MACRO activities(mask) AS [a for a in enum_range(NULL::activity) if mask & (1::BIGINT << class_of(a)) > 0];

-- Whether a list of activities contains any of the given ones; an unknown name is an error.
CREATE MACRO shows(active, doing) AS list_has_any(active, doing::activity[]::VARCHAR[]);

-- Number of elements of two shapes with as many dimensions, broadcast to a common shape.
CREATE MACRO broadcast_elements(a, b) AS list_product(list_transform(range(1, len(a) + 1), lambda d: greatest(a[d], b[d])::DOUBLE));

-- Whether this is the name of the backward function of x[i] or x[i:j].
CREATE MACRO is_row_gradient(name) AS regexp_matches(name, '^autograd::engine::evaluate_function: (Select|Slice)Backward\d*$');

-- Whether this is the op of a recurrent layer (not of a cell), which runs all its time steps in C++.
CREATE MACRO is_rnn_layer(name) AS name IN ('aten::lstm', 'aten::gru', 'aten::rnn_tanh', 'aten::rnn_relu');

-- A rank in messages, with its host when known.
CREATE MACRO rank_label(rank, host) AS 'rank ' || rank || coalesce(' (' || host || ')', '');
-- A readable list of at most eight ranks.
CREATE MACRO ranks_text(ranks) AS
    CASE WHEN len(ranks) = 1 THEN 'rank ' ELSE 'ranks ' END || array_to_string(ranks[1:8], ', ') ||
    CASE WHEN len(ranks) > 8 THEN ' and ' || (len(ranks) - 8) || ' more' ELSE '' END;

-- The name of the group formed by these ranks.
CREATE MACRO group_text(ranks) AS
    'group of rank' || CASE WHEN len(ranks) > 1 THEN 's ' ELSE ' ' END
    || CASE WHEN ranks = range(ranks[1], ranks[-1] + 1) THEN ranks[1] || '-' || ranks[-1]
            ELSE array_to_string(ranks[:8], ', ') || CASE WHEN len(ranks) > 8 THEN ' ...' ELSE '' END END;

-- A time in messages, in the format of perftool.units.format_ns.
CREATE MACRO three_digits(value) AS
    printf(CASE WHEN abs(value) >= 100 THEN '%.0f' WHEN abs(value) >= 10 THEN '%.1f' ELSE '%.2f' END, value::DOUBLE);
CREATE MACRO time_text(ns) AS
    CASE WHEN abs(ns) >= 0.9995e9 THEN three_digits(ns / 1e9) || ' s'
         WHEN abs(ns) >= 0.9995e6 THEN three_digits(ns / 1e6) || ' ms'
         WHEN abs(ns) >= 0.9995e3 THEN three_digits(ns / 1e3) || ' us' ELSE printf('%.0f ns', ns::DOUBLE) END;

-- A clause that states the step time without a straggler's delay, or the largest possible gain if there is no
-- prediction.
CREATE MACRO without_text(predicted, step, estimate, steps) AS
    CASE WHEN predicted > 0 THEN 'without that delay, a step takes ' || time_text(step - predicted) || ' instead of ' || time_text(step) || CASE WHEN steps = 1 THEN ' (predicted from one step)' ELSE ' (predicted)' END
         ELSE 'this costs up to ' || time_text(estimate) || CASE WHEN steps = 1 THEN ' of the ' ELSE ' of each ' END || time_text(step) || ' step' END;
-- A clause that states how many of the steps are affected, and how regularly.
CREATE MACRO period_text(times, steps, every) AS
    CASE WHEN steps = 1 THEN 'in the one step recorded' ELSE 'in ' || times || ' of ' || steps || ' steps' END
    || CASE WHEN every = 2 THEN ', every other one' WHEN every = 3 THEN ', every 3rd'
            WHEN every > 20 THEN ', every ' || every || ' steps' WHEN every > 3 THEN ', every ' || every || 'th' ELSE '' END;

-- Converts the data type of a node from Gaudi's name to the one in devices.toml; NULL for other types.
CREATE MACRO node_dtype(dtype) AS
    CASE WHEN regexp_matches(dtype, '^(bf16|bfloat16|syn_type_bf16)$', 'i') THEN 'bf16'
         WHEN regexp_matches(dtype, '^(f16|fp16|float16|syn_type_fp16)$', 'i') THEN 'fp16'
         WHEN regexp_matches(dtype, '^(f32|fp32|float32|float|single|syn_type_float|syn_type_single)$', 'i') THEN 'fp32'
         WHEN regexp_matches(dtype, '^(hf8|f8|fp8|fp8_143|fp8_152|float8.*|syn_type_fp8.*)$', 'i') THEN 'fp8' END;

-- Returns a row (rank, module) for each class of modules that may be trained: a backward pass may go through a call of
-- the class, or of another class with the same forward function. The source has the columns of module_calls.
CREATE MACRO trained_classes(calls) AS TABLE (
    WITH shared AS (
        SELECT DISTINCT rank, file, line FROM query_table(calls) WHERE differentiated IS DISTINCT FROM false AND file IS NOT NULL
    )
    SELECT DISTINCT c.rank, c.module
    FROM query_table(calls) AS c
    LEFT JOIN shared AS s ON s.rank = c.rank AND s.file = c.file AND s.line IS NOT DISTINCT FROM c.line
    WHERE c.differentiated IS DISTINCT FROM false OR s.rank IS NOT NULL
);
