-- The steps of known time of one group of files, counted by engine, kind and the logarithm of their time.
-- Reads: chosen. Parameters: $base, the base of the logarithm; $least_us, what shorter times count as.
SELECT
    engine,
    CAST(coalesce(kind, -1) AS BIGINT) AS kind,
    CAST(floor(ln(greatest(observed_s * 1e6 / greatest(coalesce(resolution_steps, 1), 1), $least_us)) / ln($base))
        AS BIGINT) AS bin,
    CAST(sum(greatest(coalesce(resolution_steps, 1), 1)) AS BIGINT) AS steps
FROM chosen
WHERE observed_s < 'infinity'::DOUBLE AND unix_s IS NOT NULL
GROUP BY 1, 2, 3
