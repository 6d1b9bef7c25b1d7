-- The meaning of each event category.
--
-- needs: _vocabulary
-- column category: VARCHAR, in lower case
-- column kind: VARCHAR, normalised category (slices.cat); on lanes of the host if side is 'lane'
-- column side: VARCHAR, 'host', 'device', or 'lane'
-- column by_name: BOOLEAN, whether only names distinguish copies and fills from other work
SELECT pattern AS category, CASE role WHEN 'lane' THEN 'runtime' ELSE role END AS kind,
       CASE WHEN role = 'lane' THEN 'lane'
            WHEN role IN ('kernel', 'memcpy', 'memset', 'device_annotation') THEN 'device' ELSE 'host' END AS side,
       role = 'lane' OR pattern IN (SELECT pattern FROM _vocabulary WHERE subject = 'category' AND role = 'by_name') AS by_name
FROM _vocabulary WHERE subject = 'category' AND role NOT IN ('sign', 'by_name')
