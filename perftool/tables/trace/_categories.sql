-- The meaning of each event category.
--
-- needs: _vocabulary
-- column category: VARCHAR, event category in lower case
-- column kind: VARCHAR, normalised category (slices.cat); if side is 'lane', only for events on host lanes
-- column side: VARCHAR, 'host', 'device', or 'lane' (the event's lane decides)
-- column by_name: BOOLEAN, whether only names distinguish copies and fills from other work in this category
SELECT pattern AS category, CASE role WHEN 'lane' THEN 'runtime' ELSE role END AS kind,
       CASE WHEN role = 'lane' THEN 'lane'
            WHEN role IN ('kernel', 'memcpy', 'memset', 'device_annotation') THEN 'device' ELSE 'host' END AS side,
       role = 'lane' OR pattern IN (SELECT pattern FROM _vocabulary WHERE subject = 'category' AND role = 'by_name') AS by_name
FROM _vocabulary WHERE subject = 'category' AND role NOT IN ('sign', 'by_name')
