"""Logs and feeds beside better sources of the same engine: it is counted once, by the source that tells most of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rooflens.live_records import SourceKind
from rooflens.pipeline.beside import Kin, kin
from rooflens.pipeline.feeds import FeedTold
from rooflens.pipeline.labels import UNKNOWN_MODEL, model_name
from rooflens.records import EngineInfo

BEST_FIRST = (SourceKind.RING, SourceKind.PUSH, SourceKind.FEED, SourceKind.METRICS, SourceKind.LOG)
ASIDE_KINDS = (SourceKind.FEED, SourceKind.LOG)
WORDS = {
    SourceKind.RING: "its ring",
    SourceKind.PUSH: "what is pushed",
    SourceKind.FEED: "its forward-pass messages",
    SourceKind.METRICS: "its metrics page",
    SourceKind.LOG: "its log",
}
SAME_TOKENS_RATIO = 0.02  # of a pool that both tell: what one sets aside, and what a log rounds


@dataclass(frozen=True, slots=True)
class Known:
    """An engine that is watched: ``here`` is whether it is known to run on this machine."""

    run: str
    source: SourceKind
    info: EngineInfo | None
    here: bool


def may_be_one(one: EngineInfo | None, other: EngineInfo | None) -> bool:
    """Whether two sources of this machine may tell of one engine: nothing that both state contradicts it."""
    if one is None or other is None:
        return False
    if one.engine != other.engine or one.rank != other.rank:
        return False
    names = {model_name(one), model_name(other)} - {UNKNOWN_MODEL}
    if len(names) > 1 and not names & {each.base_model_name for each in (one, other)}:
        return False
    if one.engine_version and other.engine_version and _release(one) != _release(other):
        return False
    pools = [info.kv_blocks * info.block_tokens for info in (one, other) if info.kv_blocks and info.block_tokens]
    alone = one.data_parallel == other.data_parallel == 1  # of several, some pages give a share of the sum
    return len(pools) < 2 or not alone or abs(pools[0] - pools[1]) <= SAME_TOKENS_RATIO * max(pools)


def _release(info: EngineInfo) -> str:
    """The version without what a build appends to it."""
    return (info.engine_version or "").partition("+")[0].removeprefix("v")


def better(source: SourceKind, than: SourceKind) -> bool:
    """Whether a source tells more of an engine than another of another kind."""
    return BEST_FIRST.index(source) < BEST_FIRST.index(than)


def stands_aside(run: str, source: SourceKind, info: EngineInfo | None, known: Sequence[Known]) -> Known | None:
    """The engine that a better source tells of, where a log or a feed of this machine may tell of the same one."""
    if source not in ASIDE_KINDS:
        return None
    fitting = (k for k in known if k.run != run and k.here and better(k.source, source) and may_be_one(info, k.info))
    return next(fitting, None)


def aside_of(told: Sequence[FeedTold], known: Sequence[Known]) -> Mapping[str, str]:
    """The runs of logs and feeds that are not counted, each with a line that says why."""
    found: dict[str, str] = {}
    for each in told:
        here = each.feed.here if each.batch.here is None else each.batch.here
        other = stands_aside(each.run, each.feed.kind, each.batch.info, known) if here else None
        if other is not None:
            named = f"{each.name} tells of an engine of {model_name(other.info)} that {WORDS[other.source]} tells of"
            found[each.run] = f"{named} better: it is left aside; where it is of another server, leave one of them out"
    return found


def lesser(source: SourceKind, info: EngineInfo | None, here: bool, known: Sequence[Known]) -> list[str]:
    """The runs that stand aside for an engine that begins to be told of by ``source``: pages for its ring too."""
    new = (Known("", source, info, here),)
    near = [each for each in known if each.here]
    pages = [each for each in near if source is SourceKind.RING and each.source is SourceKind.METRICS]
    found = [each.run for each in near if stands_aside(each.run, each.source, each.info, new)]
    return [*found, *(page.run for page in pages if kin(page.info, info) is not Kin.OTHER)]
