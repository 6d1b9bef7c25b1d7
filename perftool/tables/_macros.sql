-- Interval arithmetic that the tables share. Intervals are half open, [ts, end), in ns; a relation of intervals
-- has the columns rank, class, ts and "end". Classes are small integers; class -1 only marks a boundary.

-- Overlapping and touching intervals of a rank and class become one. An island starts where nothing before it
-- reaches; it ends where the reach stood when the next one starts. (Window aggregates with FILTER are 20 times
-- slower than this.)
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

-- How long the intervals of a rank and class are together, in ns: the lengths of their union, for half the work.
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

-- Cuts time wherever an interval starts or ends. Bit c of mask is set while class c is active. The intervals
-- of one class must not overlap.
CREATE MACRO interval_sweep(source) AS TABLE (
    WITH edges AS (
        SELECT rank, ts AS t, CASE WHEN class < 0 THEN 0 ELSE 1::BIGINT << class END AS delta FROM query_table(source)
        UNION ALL
        SELECT rank, "end", CASE WHEN class < 0 THEN 0 ELSE -(1::BIGINT << class) END FROM query_table(source)
    ),
    -- The sum takes in all edges of a moment, and of these only the last one has a stretch after it. (Adding them up
    -- first takes a quarter longer.)
    stretches AS (
        SELECT rank, t AS ts, lead(t) OVER w AS "end", (sum(delta) OVER w)::BIGINT AS mask
        FROM edges WINDOW w AS (PARTITION BY rank ORDER BY t)
    )
    SELECT rank, ts, "end", mask FROM stretches WHERE "end" > ts
);

-- Which intervals of one source lie inside which of another, on the same lane: a row (outside, inside) of ids for each
-- pair. Both have the columns lane, id, ts and "end", and no negative lengths. An interval is compared with the last of
-- the others that starts before it and with those in which that one starts. To compare it with all of them would take
-- a time that grows with the square of the recording.
CREATE MACRO interval_pairs(insides, outsides) AS TABLE (
    WITH nested AS (
        SELECT l.id AS last, o.id, o."end"
        FROM query_table(outsides) AS l
        JOIN query_table(outsides) AS o ON o.lane = l.lane AND o.ts <= l.ts AND o."end" >= l.ts
    )
    SELECT n.id AS outside, i.id AS inside
    FROM query_table(insides) AS i
    ASOF JOIN query_table(outsides) AS l ON l.lane = i.lane AND i.ts >= l.ts
    JOIN nested AS n ON n.last = l.id
    WHERE i."end" <= n."end"
);

CREATE MACRO arg(args, key) AS json_extract_string(args, '$."' || key || '"');
CREATE MACRO int_arg(args, key) AS try_cast(json_extract_string(args, '$."' || key || '"') AS BIGINT);

-- A list as JSON; NULL for anything else, with which functions of JSON would fail.
CREATE MACRO list_json(value) AS CASE WHEN starts_with(value, '[') AND json_valid(value) THEN value END;

-- A list of ranks as PyTorch writes it: of more than thirty the first 29 and the last.
CREATE MACRO listed_ranks(value) AS
    CASE WHEN length(value) > 100 THEN regexp_replace(value, '^(\[(?:\s*\d+,){29})(?:\s*\d+,){2,}(\s*\d+\])$', '\1 ...,\2') ELSE value END;

-- How far the clocks of host and device may differ: work that seems to start so much before its call belongs to it, and
-- idle time that seems to begin so much after a wait follows it.
CREATE MACRO clock_slack_ns() AS 20000;

-- Whether something can have taken that long: 2**53 ns are 104 days. The sum of longer ones would not fit 64 bits.
CREATE MACRO is_length(ns) AS ns BETWEEN 0 AND 9007199254740992;

-- The annotation of a profiler step.
CREATE MACRO is_step(name) AS starts_with(name, 'ProfilerStep#');

-- What goes on at a moment, on a device or on the host; _timeline says what each means. Position is class.
CREATE TYPE activity AS ENUM (
    'compute', 'collective', 'group_compute', 'group_collective', 'copy', 'fill',
    'process_group', 'other_call', 'other_loading', 'other_op', 'call', 'copy_call',
    'fallback', 'graph_build', 'loading', 'op', 'group_op', 'optimizer',
    'python', 'group_annotation', 'device_wait', 'compile', 'submitted_late', 'submitted_early',
    'input_copy', 'optimizer_op', 'start_up', 'wrapper'
);
CREATE MACRO class_of(doing) AS enum_code(doing::activity)::INTEGER;

-- Whether a mask of interval_sweep shows any of some activities; a name that is none is an error.
CREATE MACRO shows(mask, doing) AS
    (mask) & list_sum(list_transform(doing::activity[], lambda a: 1::BIGINT << enum_code(a)::INTEGER))::BIGINT > 0;

-- A rank in the words of a message, with its host where that is known.
CREATE MACRO rank_label(rank, host) AS 'rank ' || rank || coalesce(' (' || host || ')', '');
-- Ranks as people list them: the first eight.
CREATE MACRO ranks_text(ranks) AS
    CASE WHEN len(ranks) = 1 THEN 'rank ' ELSE 'ranks ' END || array_to_string(ranks[1:8], ', ') ||
    CASE WHEN len(ranks) > 8 THEN ' and ' || (len(ranks) - 8) || ' more' ELSE '' END;

-- The group that these ranks are.
CREATE MACRO group_text(ranks) AS
    'group of rank' || CASE WHEN len(ranks) > 1 THEN 's ' ELSE ' ' END
    || CASE WHEN ranks = range(ranks[1], ranks[-1] + 1) THEN ranks[1] || '-' || ranks[-1]
            ELSE array_to_string(ranks[:8], ', ') || CASE WHEN len(ranks) > 8 THEN ' ...' ELSE '' END END;

-- Times in the words of a message, as perftool.units.format_ns writes those that are columns of their own.
CREATE MACRO three_digits(value) AS
    printf(CASE WHEN abs(value) >= 100 THEN '%.0f' WHEN abs(value) >= 10 THEN '%.1f' ELSE '%.2f' END, value::DOUBLE);
CREATE MACRO time_text(ns) AS
    CASE WHEN abs(ns) >= 0.9995e9 THEN three_digits(ns / 1e9) || ' s'
         WHEN abs(ns) >= 0.9995e6 THEN three_digits(ns / 1e6) || ' ms'
         WHEN abs(ns) >= 0.9995e3 THEN three_digits(ns / 1e3) || ' us' ELSE printf('%.0f ns', ns::DOUBLE) END;

-- What a rank does longer than the others, in the words of a message; the causes are those of rank_excess.
CREATE MACRO cause_text(cause, own, others, other) AS
    CASE cause WHEN 'compute' THEN 'its kernels take ' || time_text(own) || ', those of ' || others || ' ' || time_text(other)
         WHEN 'dataloader' THEN 'its device waits ' || time_text(own) || ' for the data loader, that of ' || others || ' ' || time_text(other)
         WHEN 'copy' THEN 'its copies take ' || time_text(own) || ', those of ' || others || ' ' || time_text(other)
         WHEN 'compile' THEN 'compiling takes ' || time_text(own) || ' there, on ' || others || ' ' || time_text(other)
         WHEN 'host' THEN 'its device waits ' || time_text(own) || ' for its host, that of ' || others || ' ' || time_text(other)
         WHEN 'link' THEN 'its collectives take ' || time_text(own) || ' without waiting, those of ' || others || ' ' || time_text(other)
         ELSE 'the traces do not show what it does longer than ' || others END;
CREATE MACRO waiting_text(ranks, ns) AS
    ranks || CASE WHEN ranks = 1 THEN ' rank waits ' ELSE ' ranks wait ' END || time_text(ns);
