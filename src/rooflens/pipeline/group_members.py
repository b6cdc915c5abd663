"""What one engine is and does as a member of a group."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rooflens.group_records import Key, MemberFigures, Role
from rooflens.live_records import EngineView, SourceKind, State, WindowFigures
from rooflens.pipeline.engine_beside import Beside, Handed
from rooflens.records import EngineInfo

if TYPE_CHECKING:
    from rooflens.device_records import DeviceView
    from rooflens.pipeline.engine import WatchedEngine

OLD_S = 120.0  # as gauges have it: figures this old, or twice the span of their window, tell of the past
BROUGHT_SHARE = 0.9  # of its prompt tokens, which an engine that only decodes gets from another one
CPU = "the processors of this host"
# What must be equal for two engines to be replicas of each other, beside the model's own configuration.
SAME = (
    "engine", "engine_version", "weight_dtype", "quantization", "kv_dtype", "max_sequences", "max_batched_tokens",
    "max_context_tokens", "tensor_parallel", "pipeline_parallel", "context_parallel", "speculative_method",
    "speculative_tokens", "device", "role",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Member:
    """One live engine: its view, what it keeps for comparison, and ``place``: the page or log that tells of it.

    ``here`` is False where it may run on another machine; ``device`` is what its devices are called.
    """

    view: EngineView
    beside: Beside
    place: str | None
    here: bool
    device: str | None

    @property
    def key(self) -> Key:
        """Its label."""
        return self.view.model_name, self.view.engine

    @property
    def info(self) -> EngineInfo | None:
        """Its facts."""
        return self.view.info

    @property
    def exact(self) -> bool:
        """Whether its single steps have times on this host's clock."""
        return self.view.source is SourceKind.RING and self.here


def members_of(
    engines: Mapping[str, WatchedEngine],
    views: Mapping[str, EngineView],
    devices: tuple[DeviceView, ...],
    places: Sequence[Callable[[str], str | None]],
) -> Iterator[Member]:
    """The live engines by run, with their views; ``places`` say of a run which page or log tells of it."""
    names = {device.facts.uuid: device.facts.name for device in devices}
    for run, engine in engines.items():
        view = views[run]
        if view.state is State.LIVE:
            place = next((found for place_of in places if (found := place_of(run))), None)
            yield Member(view, engine.beside, place, engine.here, device_name(view, names, engine.here))


class Configurations:
    """The configuration of each engine as a word that is equal for equal ones; worked out when its facts change."""

    def __init__(self) -> None:
        self._known: dict[Key, tuple[EngineInfo, str]] = {}

    def of(self, key: Key, info: EngineInfo) -> str:
        """The word; engines of another model have another one."""
        known = self._known.get(key)
        if known is None or known[0] is not info:
            known = info, configuration(info)
            self._known[key] = known
        return known[1]

    def keep(self, keys: frozenset[Key]) -> None:
        """Forget all other engines."""
        self._known = {key: known for key, known in self._known.items() if key in keys}


def configuration(info: EngineInfo) -> str:
    """What must be equal for two engines to be replicas of each other."""
    facts: dict[str, Any] = {name: getattr(info, name) for name in SAME}
    return json.dumps([facts, info.model_config], sort_keys=True, default=str)


def device_name(view: EngineView, names: Mapping[str, str | None], here: bool) -> str | None:
    """What the devices of an engine are called, by uuid in ``names``; None where one of them is not known."""
    if view.info is not None and view.info.device == "cpu" and here:
        return CPU
    called = {names.get(uuid) for uuid in view.device_uuids}
    known = sorted(name for name in called if name is not None)
    return ", ".join(known) if known and len(known) == len(called) else None


def role_of(view: EngineView, handed: Handed) -> tuple[Role, bool]:
    """What the engine does, and whether that is a guess from what it was seen to do."""
    stated = view.info.role if view.info is not None else None
    if stated in (Role.PREFILL, Role.DECODE):
        return Role(stated), False
    if not view.windows:
        return Role.BOTH, False
    figures = view.windows[-1]
    computed, brought = handed.computed or 0.0, handed.brought or 0.0
    if brought > 0 and figures.generated_tokens and brought >= BROUGHT_SHARE * (brought + computed):
        return Role.DECODE, True
    kinds = {name for name, kind in figures.kinds.items() if kind.steps}
    prefilled = kinds == {"prefill"} or (kinds == {"prefill", "dummy"})
    if prefilled and view.source.single_steps and computed > 0:
        return Role.PREFILL, True
    return Role.BOTH, False


def member_figures(view: EngineView, role: Role, now_unix_s: float) -> MemberFigures | None:
    """Its figures in the group, of its newest window; None before the first, once it is old, or when it is gone."""
    if view.state is not State.LIVE or not view.windows:
        return None
    figures, info = view.windows[-1], view.info
    if now_unix_s - figures.end_unix_s > max(OLD_S, 2 * figures.span_s):
        return None
    pool = _pool_tokens(info)
    kind = figures.kinds.get("prefill" if role is Role.PREFILL else "decode")
    dummies = figures.kinds.get("dummy")
    return MemberFigures(
        model_name=view.model_name,
        engine=view.engine,
        role=role,
        generated_tokens_per_s=_rate(figures, figures.generated_tokens),
        prefill_tokens_per_s=_rate(figures, figures.prefill_tokens),
        steps_per_s=_rate(figures, figures.steps),
        running=figures.running_mean,
        waiting=figures.waiting_mean,
        waiting_share=figures.waiting_share,
        kv_tokens_used=pool * figures.kv_used_mean if pool and figures.kv_used_mean is not None else None,
        kv_tokens=pool,
        kv_used_ratio=figures.kv_used_mean,
        batch=figures.batch_mean,
        cap=float(info.max_sequences) if info is not None and info.max_sequences else None,
        context_tokens=figures.context_tokens_mean,
        step_p50_s=kind.step_p50_s if kind is not None else None,
        over_reachable=_over(figures.compared_s, figures.reachable_s),
        over_floor=_over(figures.compared_s, figures.floor_s),
        dummy_share=dummies.steps / figures.steps if dummies is not None and figures.steps else 0.0,
        reachable_step_s=_needed_s(figures),
    )


def _rate(figures: WindowFigures, count: int | None) -> float | None:
    return count / figures.span_s if count is not None and figures.span_s > 0 else None


def _over(observed_s: float | None, bound_s: float | None) -> float | None:
    return observed_s / bound_s if observed_s is not None and bound_s else None


def _pool_tokens(info: EngineInfo | None) -> float | None:
    return float(info.kv_blocks * info.block_tokens) if info and info.kv_blocks and info.block_tokens else None


def _needed_s(figures: WindowFigures) -> float | None:
    """What a step of this engine needs on average; one that it ran for its peers alone needs nothing of its own."""
    dummies = figures.kinds.get("dummy")
    own = figures.steps - (dummies.steps if dummies is not None else 0)
    compared = sum(kind.compared_steps or 0 for kind in figures.kinds.values())
    if figures.steps and not own:
        return 0.0
    needed_s = figures.reachable_s if figures.reachable_s is not None else figures.expected_s
    if needed_s is None or not compared:
        return None
    return needed_s / compared * own / figures.steps
