-- The busy time of single steps by the logarithm of their length, and how far apart rows of several steps usually are.
-- Reads: chosen. Parameter: $base, the base of the logarithm.
WITH apart AS (
    SELECT unix_s - lag(unix_s) OVER (PARTITION BY run ORDER BY unix_s) AS gap_s
    FROM chosen
    WHERE resolution_steps > 1
)
SELECT
    CAST(floor(ln(observed_s) / ln($base)) AS BIGINT) AS bin,
    sum(observed_s) AS seconds,
    max(observed_s) AS length_s
FROM chosen
WHERE observed_s > 0 AND observed_s < 'infinity'::DOUBLE AND coalesce(resolution_steps, 1) <= 1
GROUP BY 1
UNION ALL
SELECT NULL, count(gap_s), median(gap_s) FROM apart WHERE gap_s > 0
