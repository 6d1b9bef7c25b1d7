-- When the device is busy: a row for each change, and one at the start of the window.
--
-- needs: windows, device_busy
-- empty without: windows
-- column rank: INTEGER, distributed rank
-- column ts: BIGINT, time of the change in ns
-- column busy: INTEGER, 1 if the device is busy from this moment on, else 0
SELECT rank, ts, max(busy)::INTEGER AS busy
FROM (SELECT rank, ts, 0 AS busy FROM windows
      UNION ALL SELECT rank, ts, 1 FROM device_busy
      UNION ALL SELECT rank, "end", 0 FROM device_busy)
GROUP BY rank, ts ORDER BY rank, ts
