-- Partials added up, in the order in which they come. Reads: parts (the columns of part.sql's answer).
SELECT
    engine,
    "window",
    kind,
    batch_log2,
    context_log4,
    devices,
    sum(COLUMNS(* EXCLUDE (engine, "window", kind, batch_log2, context_log4, devices, first_unix_s, last_unix_s,
        begun_unix_s, observed_max_s, kv_ratio_max))),
    min(COLUMNS(['first_unix_s', 'begun_unix_s'])),
    max(COLUMNS(['last_unix_s', 'observed_max_s', 'kv_ratio_max']))
FROM parts
GROUP BY 1, 2, 3, 4, 5, 6
