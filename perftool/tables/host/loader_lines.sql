-- The line of the user's own code at which the workers of a rank's data loader spend most of their CPU time, by samples
-- of their stacks.
--
-- A rank has no row if there are fewer than 30 samples, because the share of a line could then be wrong by a fifth, or
-- if the line takes 15 % of the time or less, because it then does not explain why the workers are slow.
--
-- needs: loader_calls
-- empty without: loader_calls
-- column rank: INTEGER, distributed rank
-- column file: VARCHAR, file of the line
-- column line: INTEGER, number of the line
-- column function: VARCHAR, function of the line
-- column place: VARCHAR, the same in one text, without the folders of the file: text.py:7 (load)
-- column share: DOUBLE, share of the samples that show the line
-- column inside: VARCHAR, the function that most often ran inside the line; NULL if none took more than 15 % of the time
-- column inside_share: DOUBLE, share of the line's samples that show this function
WITH lines AS (
    SELECT rank, file, line, function, sum(samples) AS samples, max(fetching) AS fetching,
           arg_max({'function': inside, 'samples': samples}, (samples, inside)) FILTER (inside IS NOT NULL AND samples > 0.15 * fetching) AS most
    FROM loader_calls WHERE file IS NOT NULL AND fetching >= 30 GROUP BY rank, file, line, function
)
SELECT rank, file, line, function, format('{}:{} ({})', regexp_extract(file, '[^/\\]*$'), line, function) AS place,
       samples / fetching AS share, most.function AS inside, most.samples / samples AS inside_share
FROM lines WHERE samples > 0.15 * fetching QUALIFY row_number() OVER (PARTITION BY rank ORDER BY samples DESC, file, line, function) = 1
ORDER BY rank
