-- One row per lane: a host thread, a device stream or a device engine.
--
-- needs: _categories, _engine_processes, _lanes
-- empty without: raw
-- column id: BIGINT, identifies the track within the store
-- column rank: INTEGER, distributed rank of the trace
-- column pid: VARCHAR, process id as written in the file (a number, a string, or empty)
-- column tid: VARCHAR, thread id as written in the file
-- column process: VARCHAR, process name, NULL when not recorded
-- column thread: VARCHAR, thread name, NULL when not recorded
-- column side: VARCHAR, 'host' or 'device'
-- column engine: VARCHAR, Gaudi engine group (MME, TPC, DMA, PDMA, NIC, ROT, other); NULL elsewhere
WITH named AS (
    SELECT rank, pid, tid,
           short_name(last(args ->> 'name' ORDER BY rowid) FILTER (name = 'process_name')) AS process,
           short_name(last(args ->> 'name' ORDER BY rowid) FILTER (name = 'thread_name')) AS thread
    FROM raw WHERE ph = 'M' AND name IN ('process_name', 'thread_name')
    GROUP BY ALL
),
processes AS (
    SELECT rank, pid, max(process) AS process FROM named GROUP BY ALL
),
with_engines AS (
    SELECT rank, process, list(DISTINCT vendor ORDER BY vendor) AS vendors FROM _engine_processes GROUP BY rank, process
),
used AS (
    SELECT rank, pid, tid,
           bool_or(side = 'device' AND kind <> 'device_annotation') AS device_work,
           bool_and(kind IS NOT DISTINCT FROM 'device_annotation') AS device_notes,
           coalesce(bool_and(side = 'host'), false) AS host_work
    FROM (SELECT rank, coalesce(pid, '') AS pid, coalesce(tid, '') AS tid, lower(cat) AS category
          -- DISTINCT leaves few rows. The comparisons are separate, because IN would hash ph for each event.
          FROM (SELECT DISTINCT rank, pid, tid, cat FROM raw
                WHERE ph = 'X' OR ph = 'B' OR ph = 'E' OR ph = 'i' OR ph = 'I' OR ph = 'C'))
    LEFT JOIN _categories USING (category)
    GROUP BY ALL
),
described AS (
    -- Python threads without a kernel thread ID are in process 0, as is Gaudi's device. A lane with host work is not a
    -- lane of the device.
    SELECT u.*, p.process, n.thread, e.process IS NOT NULL AND NOT u.host_work AS has_engines, e.vendors,
           lower(p.process || ' ' || coalesce(n.thread, '')) AS label,
           CASE WHEN regexp_full_match(u.tid, '\d{1,6}') THEN (u.tid::INTEGER // 1000)::VARCHAR END AS base
    FROM used AS u
    LEFT JOIN processes AS p USING (rank, pid)
    LEFT JOIN with_engines AS e ON e.rank = u.rank AND e.process = p.process
    LEFT JOIN named AS n USING (rank, pid, tid)
)
SELECT row_number() OVER (ORDER BY rank, pid, tid) - 1 AS id, rank, pid, tid, process, thread,
       CASE WHEN has_engines OR device_work OR device_notes THEN 'device' ELSE 'host' END AS side,
       CASE WHEN has_engines THEN (
           SELECT first(engine ORDER BY ordinal) FROM _lanes
           WHERE list_contains(vendors, vendor) AND regexp_matches(CASE field WHEN 'process' THEN label ELSE base END, pattern)
       ) END AS engine
FROM described
