-- The line of the user's own code at which the workers of a rank's data loader spend most of their CPU time, by samples
-- of their stacks.
--
-- A rank has no row if there are fewer than 30 samples, because the share of a line could then be wrong by a fifth.
--
-- needs: loader_calls
-- empty without: loader_calls
-- column rank: INTEGER, distributed rank
-- column file: VARCHAR, file of the line
-- column line: INTEGER, number of the line
-- column function: VARCHAR, function of the line
-- column share: DOUBLE, share of the samples that show the line
-- column inside: VARCHAR, the function that most often ran inside the line; NULL if it called no Python function
-- column inside_share: DOUBLE, share of the line's samples that show this function
WITH lines AS (
    SELECT rank, file, line, function, sum(samples) AS samples, max(fetching) AS fetching,
           arg_max({'function': inside, 'samples': samples}, (samples, inside)) FILTER (inside IS NOT NULL) AS most
    FROM loader_calls WHERE file IS NOT NULL AND fetching >= 30 GROUP BY rank, file, line, function
)
SELECT rank, file, line, function, samples / fetching AS share, most.function AS inside, most.samples / samples AS inside_share
FROM lines QUALIFY row_number() OVER (PARTITION BY rank ORDER BY samples DESC, file, line, function) = 1 ORDER BY rank
