"""The KV pool as a page tells it: blocks held and the contexts in them, at one moment and over an interval."""

from __future__ import annotations

from dataclasses import dataclass

from rooflens.adapters.scrape.readings import LONGEST_NUMBER, Reading

# One block is set aside by the engine (the null block) and never given out.
SET_ASIDE_BLOCKS = 1
# The used ratio is exact but for the null block, which the V0 engine counts.
KV_ROUNDING_BLOCKS = 1.0
HITS = ("prefix_hit_tokens", "prefix_hit_blocks")  # ever since the engine began
# The engine's own size of the pool in tokens against its blocks: equal for layers of one kind, off by a factor else.
UNIFORM_RATIO = 0.01


@dataclass(frozen=True, slots=True)
class Pool:
    """``blocks`` can be held by requests, each of ``block_tokens`` tokens.

    ``uniform`` is False where a block does not stand for that many tokens of a sequence: layers of several kinds
    (full and sliding attention, state spaces) take blocks of their own from one pool.
    """

    blocks: int
    block_tokens: int
    uniform: bool = True


@dataclass(frozen=True, slots=True)
class Held:
    """What requests held on average over an interval; bounds are None where the pool may have done anything between.

    ``context_tokens`` are summed over the running sequences, a prefix that several share once; None where blocks
    do not tell tokens.
    """

    blocks: float
    context_tokens: float | None
    context_low: float | None
    context_high: float | None
    derivation: str


def pool_of(reading: Reading) -> Pool | None:
    """The pool of one engine, as its info series describes it; None where it does not say.

    An API server adds up the blocks of all the engines that it serves and gives the sum for each of them; the size
    in tokens, where there is one, is that of one engine.
    """
    total = positive(reading.config.get("num_gpu_blocks"))
    block_tokens = positive(reading.config.get("block_size"))
    if total is None or block_tokens is None:
        return _told_by_gauges(reading)
    tokens = positive(reading.config.get("kv_cache_size_tokens"))
    each, uniform = total // reading.sharing, positive(reading.config.get("mamba_block_size")) is None
    if tokens is not None:
        fitting = [n for n in (each, total) if abs(n * block_tokens - tokens) <= UNIFORM_RATIO * tokens]
        each, uniform = (fitting[0], uniform) if fitting else (each, False)
    return Pool(each - SET_ASIDE_BLOCKS, block_tokens, uniform) if each > SET_ASIDE_BLOCKS else None


def _told_by_gauges(reading: Reading) -> Pool | None:
    """The pool of an engine that tells its size as a gauge, or tokens and their part of it; nothing is set aside."""
    block_tokens = round(reading.get("page_tokens") or 1)
    blocks, tokens = reading.get("kv_blocks"), reading.get("kv_capacity_tokens")
    used, held_tokens = reading.get("kv_used"), reading.get("kv_used_tokens")
    if tokens is None and used and held_tokens:
        tokens = held_tokens / used
    if blocks is None and tokens is not None:
        blocks = tokens / block_tokens
    return Pool(round(blocks), block_tokens) if blocks and round(blocks) > 0 else None


def positive(text: str | None) -> int | None:
    """A positive whole number in a label; None for anything else, "None" included."""
    if not text or not text.isascii() or not text.isdecimal() or len(text) > LONGEST_NUMBER:
        return None
    return int(text) or None


def held(before: Reading, after: Reading, steady: bool) -> Held | None:
    """What was held between two readings; None where neither end tells, or nothing ran at both.

    ``steady`` is whether no request came or went in between: then what is held only grows, and the ends are bounds.
    There is no upper one where prompts may share blocks.
    """
    pool = pool_of(after)
    if pool is None:
        return None
    ends = [
        (used * pool.blocks, running)
        for reading in (before, after)
        if (used := reading.get("kv_used")) is not None and (running := reading.get("running") or 0) > 0
    ]
    if not ends:
        return None
    # A step's new token has its slot already, so the last block of a sequence is filled half and one token more.
    unfilled = (pool.block_tokens + 1) / 2
    contexts = [max(blocks * pool.block_tokens - unfilled * running, 0.0) for blocks, running in ends]
    slack = [(unfilled - 1) * running + KV_ROUNDING_BLOCKS * pool.block_tokens for _, running in ends]
    both, shared = len(ends) == 2, _may_share(after)
    return Held(
        blocks=sum(blocks for blocks, _ in ends) / len(ends),
        context_tokens=sum(contexts) / len(contexts) if pool.uniform else None,
        context_low=max(min(contexts) - max(slack), 0.0) if steady and both else None,
        context_high=max(contexts) + max(slack) if steady and both and not shared else None,
        derivation=_words(pool, steady, both, shared),
    )


def _may_share(reading: Reading) -> bool:
    """Whether sequences may hold the same blocks: some prompt was found in the prefix cache, or it is not told."""
    hits = [value for key in HITS if (value := reading.get(key)) is not None]
    return any(hits) if hits else reading.config.get("enable_prefix_caching") != "False"


def _words(pool: Pool, steady: bool, both: bool, shared: bool) -> str:
    words = f"KV used x {pool.blocks:,} blocks of {pool.block_tokens} tokens, less half a block a sequence"
    words += ", mean of both ends" if both else ", of the one end at which requests ran"
    words += "; a shared prefix counts once, so contexts may be longer" if shared else ""
    return words if steady and both else words + "; requests came or went in between, so there is no bound"
