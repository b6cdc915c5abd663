-- Partials added up, in the order in which they come. Reads: parts (the columns of part.sql's answer).
SELECT
    engine,
    "window",
    kind,
    batch_log2,
    context_log4,
    sum(COLUMNS(* EXCLUDE (engine, "window", kind, batch_log2, context_log4, first_unix_s, last_unix_s,
        observed_max_s, kv_blocks_used_max))),
    min(first_unix_s) AS first_unix_s,
    max(COLUMNS(['last_unix_s', 'observed_max_s', 'kv_blocks_used_max']))
FROM parts
GROUP BY 1, 2, 3, 4, 5
