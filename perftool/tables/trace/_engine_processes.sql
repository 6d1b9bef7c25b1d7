-- The processes whose threads are the lanes of a device, according to their names. Any program may have such a name, so
-- the name counts only if nothing shows a device of another vendor: its name in the metadata or, without one, a category
-- that only another vendor's traces have.
--
-- needs: _vocabulary, devices
-- column rank: INTEGER, distributed rank
-- column process: VARCHAR, process name
-- column vendor: VARCHAR, type of the device
WITH named AS (
    SELECT DISTINCT n.rank, n.process, v.vendor
    FROM (SELECT DISTINCT rank, short_name(args ->> 'name') AS process FROM raw WHERE ph = 'M' AND name = 'process_name') AS n
    JOIN _vocabulary AS v ON v.subject = 'process' AND v.role = 'device' AND lower(n.process) GLOB v.pattern
),
metadata AS (
    SELECT DISTINCT d.rank, v.vendor FROM devices AS d JOIN _vocabulary AS v ON v.subject = 'device' AND lower(d.name) GLOB v.pattern
),
categories AS (
    SELECT DISTINCT rank, lower(cat) AS category FROM raw
    WHERE rank IN (SELECT rank FROM named EXCEPT SELECT rank FROM metadata)
),
shown AS (
    FROM metadata
    UNION SELECT c.rank, v.vendor FROM categories AS c
          JOIN _vocabulary AS v ON v.subject = 'category' AND v.role = 'sign' AND c.category GLOB v.pattern
)
SELECT rank, process, vendor FROM named
WHERE rank NOT IN (SELECT rank FROM shown) OR (rank, vendor) IN (FROM shown)
