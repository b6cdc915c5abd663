-- The steps of one group of files, summed by engine, window, kind and regime: partials that merge.sql adds up.
-- Reads: chosen (engine, engine_devices, engine_pool_blocks, the columns of steps). Parameter: $width_s, the width of a window in seconds.
-- Names are those of CELL_KEYS and CELL_SUMS in src/rooflens/trace_records.py; the order as well.
WITH known AS (
    SELECT
        *,
        greatest(coalesce(resolution_steps, 1), 1) AS steps,
        -- NaN counts as larger than infinity.
        CASE WHEN observed_s < 'infinity'::DOUBLE THEN greatest(observed_s, 0.0) END AS busy_s,
        observed_s > 0 AND observed_s < 'infinity'::DOUBLE AND floor_s IS NOT NULL AS compared,
        -- A state lasts as long as its step; one of unknown time counts only where there is no other.
        greatest(coalesce(busy_s, 0.0), 1e-9) AS lasted_s,
        kv_blocks_used / engine_pool_blocks AS kv_ratio
    FROM chosen
)
SELECT
    engine,
    CAST(floor(unix_s / $width_s) AS BIGINT) AS "window",
    CAST(coalesce(kind, -1) AS BIGINT) AS kind,
    CAST(CASE WHEN requests IS NULL THEN -1 ELSE trunc(log2(greatest(requests / steps, 1.0))) END AS BIGINT)
        AS batch_log2,
    CAST(CASE WHEN requests IS NULL OR context_tokens IS NULL THEN -1
        ELSE trunc(log2(greatest(context_tokens / greatest(requests, 1), 1.0)) / 2) END AS BIGINT) AS context_log4,
    engine_devices AS devices,
    count(*) AS "rows",
    sum(steps) AS steps,
    min(unix_s) AS first_unix_s,
    max(unix_s) AS last_unix_s,
    min(unix_s - coalesce(busy_s, 0.0)) AS begun_unix_s,
    sum(CASE WHEN busy_s IS NOT NULL THEN steps ELSE 0 END) AS observed_steps,
    sum(busy_s) AS observed_s,
    max(CASE WHEN steps = 1 THEN busy_s END) AS observed_max_s,
    sum(CASE WHEN steps > 1 AND busy_s IS NOT NULL THEN steps ELSE 0 END) AS averaged_steps,
    sum(CASE WHEN compared THEN steps ELSE 0 END) AS compared_steps,
    sum(CASE WHEN compared THEN observed_s END) AS compared_observed_s,
    sum(CASE WHEN compared THEN floor_s END) AS compared_floor_s,
    sum(CASE WHEN compared THEN expected_s END) AS compared_expected_s,
    sum(CASE WHEN compared THEN memory_s END) AS compared_memory_s,
    sum(CASE WHEN compared THEN compute_s END) AS compared_compute_s,
    sum(CASE WHEN compared THEN link_floor_s END) AS compared_link_floor_s,
    sum(CASE WHEN compared THEN serial_floor_s + link_s END) AS compared_serial_s,
    sum(CASE WHEN compared THEN link_s END) AS compared_link_s,
    sum(CASE WHEN compared THEN mfu * observed_s END) AS compared_mfu_s,
    sum(CASE WHEN compared AND mfu IS NOT NULL THEN observed_s END) AS mfu_observed_s,
    sum(CASE WHEN compared AND bound = 0 THEN steps ELSE 0 END) AS memory_bound_steps,
    sum(CASE WHEN compared AND bound = 1 THEN steps ELSE 0 END) AS compute_bound_steps,
    sum(CASE WHEN compared AND bound = 2 THEN steps ELSE 0 END) AS link_bound_steps,
    sum(CASE WHEN compared AND observed_s < floor_s THEN steps ELSE 0 END) AS below_floor_steps,
    sum(CASE WHEN compared AND reachable_s IS NOT NULL THEN steps ELSE 0 END) AS reached_steps,
    sum(CASE WHEN compared AND reachable_s IS NOT NULL THEN observed_s END) AS reached_observed_s,
    sum(CASE WHEN compared THEN reachable_s END) AS reachable_s,
    sum(weight_bytes) AS weight_bytes,
    sum(kv_read_bytes) AS kv_read_bytes,
    sum(kv_write_bytes) AS kv_write_bytes,
    sum(flops) AS flops,
    sum(requests) AS requests,
    sum(CASE WHEN requests IS NOT NULL THEN steps ELSE 0 END) AS requests_steps,
    sum(query_tokens) AS query_tokens,
    sum(prefill_tokens) AS prefill_tokens,
    sum(generated_tokens) AS generated_tokens,
    sum(CASE WHEN generated_tokens IS NOT NULL THEN steps ELSE 0 END) AS generated_steps,
    sum(drafted_tokens) AS drafted_tokens,
    sum(accepted_tokens) AS accepted_tokens,
    sum(recomputed_tokens) AS recomputed_tokens,
    sum(CASE WHEN requests IS NOT NULL THEN context_tokens END) AS context_tokens,
    sum(CASE WHEN context_tokens IS NOT NULL THEN requests END) AS context_requests,
    sum(preempted) AS preempted,
    sum(waiting * lasted_s) AS waiting_s,
    sum(CASE WHEN waiting IS NOT NULL THEN lasted_s END) AS waiting_of_s,
    sum(CASE WHEN waiting > 0 THEN lasted_s WHEN waiting IS NOT NULL THEN 0 END) AS queued_s,
    sum(kv_ratio * lasted_s) AS kv_ratio_s,
    sum(CASE WHEN kv_ratio IS NOT NULL THEN lasted_s END) AS kv_ratio_of_s,
    max(kv_ratio) AS kv_ratio_max,
    sum(schedule_s) AS schedule_s,
    sum(update_s) AS update_s,
    sum(executor_s) AS executor_s,
    sum(wait_s) AS wait_s,
    sum(device_s) AS device_s,
    sum(CASE WHEN device_s IS NOT NULL THEN busy_s END) AS device_observed_s
FROM known
GROUP BY 1, 2, 3, 4, 5, 6
