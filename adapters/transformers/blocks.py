"""KV blocks of a paged cache: one number for what requests hold, one for what is kept for reuse."""

from __future__ import annotations

from typing import Any


def held(cache: Any) -> tuple[int, int]:
    """Blocks that requests hold (a shared one once) and free blocks that still hold a reusable prefix.

    In blocks of the whole model (all layers), as ``cache.num_blocks`` counts them. After 5.16 the cache hands out
    sectors to one allocator for each kind of attention, whose blocks differ in size: there bytes are counted.
    """
    total: int = cache.num_blocks
    if hasattr(cache, "get_num_free_blocks"):
        free = cache.get_num_free_blocks()
        return total - free, len(getattr(getattr(cache, "_block_manager", None), "_init_block_ids", ()))
    allocators, pool = cache.cache_allocators.values(), cache.pool
    whole_bytes = cache.num_sectors * cache.bytes_per_sector
    free_bytes = len(pool.free_sectors) * cache.bytes_per_sector
    free_bytes += sum(pool.count_free_blocks(one.index) * one.bytes_per_block for one in allocators)
    kept_bytes = sum(len(one.ledger.cached_blocks) * one.bytes_per_block for one in allocators)
    return round((whole_bytes - free_bytes - kept_bytes) * total / whole_bytes), round(kept_bytes * total / whole_bytes)


def block_tokens(cache: Any) -> int | None:
    """Tokens in a block; None where allocators differ or nothing tells."""
    found = {tokens for _, _, tokens, _ in groups(cache)}
    return found.pop() if len(found) == 1 else getattr(cache, "block_size", None)


def groups(cache: Any) -> list[tuple[str, int, int, int | None]]:
    """Kind, layers, tokens in a block and window of each kind of attention; empty where nothing tells."""
    allocators = getattr(cache, "cache_allocators", None)
    if isinstance(allocators, dict):
        return [
            (str(kind), len(one.layer_indices), int(one.tokens_per_page), getattr(one, "sliding_window", None))
            for kind, one in allocators.items()
        ]
    size, layers = getattr(cache, "block_size", None), getattr(cache, "layer_index_to_group_indices", {})
    windows = getattr(cache, "sliding_windows", {})
    if not isinstance(size, int) or not layers:
        return []
    counted: dict[int | None, int] = {}
    for layer in layers:
        window = windows.get(layer)
        window = window if isinstance(window, int) and window > 1 else None
        counted[window] = counted.get(window, 0) + 1
    return [
        ("full_attention" if window is None else "sliding_attention", count, size, window)
        for window, count in counted.items()
    ]
