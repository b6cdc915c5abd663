"""Pages of this host beside rings: one that tells of a ring's own engine stands aside, another server's does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from rooflens.pipeline.labels import model_name
from rooflens.pipeline.page_runs import Told
from rooflens.pipeline.pages import is_loopback
from rooflens.records import EngineInfo

# A page's process starts its engine, which makes its ring once the model is loaded: the ring is never the older one,
# but for what clocks are set by, and younger by no more than the slowest load.
CLOCK_SLACK_S = 60.0
LONGEST_LOAD_S = 3600.0
SAME_BLOCKS = 1  # one block is set aside in some releases' figure and not in others'
FORCE = "name it by this host's own address, not a loopback one, to have it counted as well"


class Kin(StrEnum):
    """What a page's engine is to a ring's."""

    SAME = "same"
    OTHER = "other"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class Aside:
    """Runs that are not read from their pages, and by address a line where they may be of another server."""

    runs: frozenset[str] = frozenset()
    unsure: Mapping[str, str] = field(default_factory=dict)


def kin(page: EngineInfo | None, ring: EngineInfo | None) -> Kin:
    """Whether a page of this host tells of the engine of a ring: by model, size of the pool, and when they started."""
    if model_name(page) != model_name(ring):
        return Kin.OTHER
    if page is None or ring is None:
        return Kin.UNSURE
    load_s = None
    if page.start_unix_s is not None and ring.start_unix_s is not None:
        load_s = ring.start_unix_s - page.start_unix_s
        if load_s < -CLOCK_SLACK_S:
            return Kin.OTHER
    alone = page.data_parallel == ring.data_parallel == 1  # of several, pages of some releases give a share of the sum
    if page.kv_blocks is None or ring.kv_blocks is None or not alone:
        return Kin.UNSURE
    if abs(page.kv_blocks - ring.kv_blocks) > SAME_BLOCKS:
        return Kin.OTHER
    return Kin.SAME if load_s is not None and load_s <= LONGEST_LOAD_S else Kin.UNSURE


def set_aside(told: Sequence[Told], rings: Sequence[EngineInfo | None]) -> Aside:
    """Which runs not to read, as a ring tells of the same engine, better: all but those that are surely others."""
    runs: dict[str, Kin] = {}
    urls: dict[str, Told] = {}
    for each in told:
        kins = {kin(each.batch.info, ring) for ring in rings} if is_loopback(each.url) else set()
        if kins - {Kin.OTHER}:
            runs[each.run] = Kin.SAME if Kin.SAME in kins else Kin.UNSURE
            urls[each.url] = each
    # More of one kind than there are rings: at least one of them is another server, and nobody knows which.
    crowded = {name for name in map(_name, told) if _count(told, runs, name) > _of_model(rings, name)}
    unsure = {
        url: f"{each.page.name} may tell of the engine that a ring tells of, or of another server of {_name(each)}: it "
        f"is left aside; {FORCE}"
        for url, each in urls.items()
        if runs[each.run] is Kin.UNSURE or _name(each) in crowded
    }
    return Aside(frozenset(runs), unsure)


def _name(told: Told) -> str:
    return model_name(told.batch.info)


def _count(told: Sequence[Told], runs: Mapping[str, Kin], name: str) -> int:
    return len({each.run for each in told if each.run in runs and _name(each) == name})


def _of_model(rings: Sequence[EngineInfo | None], name: str) -> int:
    return sum(model_name(ring) == name for ring in rings)
