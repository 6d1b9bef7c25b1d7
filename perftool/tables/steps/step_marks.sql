-- One row per step of a rank on its host, as marked in the recording or as detected. The steps of a rank come from the
-- first of the following sources that applies; the others are not searched:
--
-- * iteration: the iterations of a serving engine, unless less than half of the device work comes from them. An
-- iteration lasts until the next one starts, if the next one generates for the same requests.
-- * profiler: the profiler's own annotations (ProfilerStep#).
-- * optimizer: a step ends with the last call to the optimizer before the next backward pass. If there are several
-- optimizers, the one that is called least often counts.
-- * annotation: the outermost annotation that recurs least often; a step lasts until the annotation's next occurrence.
-- * copies: a step begins with copies of inputs to the device. The layers of a model also recur, but none of them
-- copies inputs from the host and waits for a result.
--
-- If steps are detected rather than marked, there must be at least three. For the last two sources, 80 % of the steps
-- must also have equal numbers of launches, and lengths from 0.5 to 1.5 times the median.
--
-- needs: _marked_steps, _found_steps
-- empty without: _marked_steps or _found_steps
-- column rank: INTEGER, distributed rank
-- column step: INTEGER, number in the step's name, or its position in the recording, from 0
-- column name: VARCHAR, name of the annotation, or step and its number
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
-- column source: VARCHAR, iteration, profiler, optimizer, annotation or copies
-- column confidence: VARCHAR, high if the program itself marks the end of a step, else medium
SELECT rank, step, name, ts, "end", source, 'high' AS confidence FROM _marked_steps
UNION ALL
SELECT rank, row_number() OVER w - 1, 'step ' || (row_number() OVER w - 1), ts, "end", source,
       CASE source WHEN 'optimizer' THEN 'high' ELSE 'medium' END
FROM _found_steps WINDOW w AS (PARTITION BY rank ORDER BY ts)
