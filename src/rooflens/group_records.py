"""The vocabulary of several engines: which belong together, each and together; frozen, SI, None for not known."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

Key = tuple[str, str]  # (model_name, engine), as in EngineView


class GroupKind(StrEnum):
    """Why engines stand together.

    DATA_PARALLEL: ranks of one server. PREFILL_DECODE: some compute prompts only, others go on from them. REPLICAS:
    the same model and configuration, nothing else shared: a router may send a request to any of them.
    """

    DATA_PARALLEL = "data_parallel"
    PREFILL_DECODE = "prefill_decode"
    REPLICAS = "replicas"


class Role(StrEnum):
    """What one engine of a group does; BOTH where it computes prompts and goes on from them."""

    PREFILL = "prefill"
    DECODE = "decode"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Group:
    """Engines that belong together, in the order of their ranks; at least two.

    ``name`` is unique among groups of one kind and model: the engine label of the first member. ``roles`` has one
    entry a member. ``guessed`` says in words what of it nobody stated. ``lockstep`` is whether a step of one member
    lasts as long as the longest of all: None where that is not known.
    """

    kind: GroupKind
    model_name: str
    name: str
    members: tuple[Key, ...]
    roles: tuple[Role, ...]
    guessed: tuple[str, ...] = ()
    lockstep: bool | None = None


@dataclass(frozen=True, slots=True)
class MemberFigures:
    """One live member, from its newest window: rates a second, means over its steps, ratios 0 to 1.

    ``kv_tokens_used`` and ``kv_tokens`` are of its pool. ``step_p50_s`` is a decode step's median (of an engine that
    only prefills, a prefill step's). ``over_reachable`` is observed over reachable time, ``over_floor`` over the
    floor. ``dummy_share`` is the part of its steps that it ran for its peers alone. ``cap`` is its largest batch.
    """

    model_name: str
    engine: str
    role: Role
    generated_tokens_per_s: float | None = None
    prefill_tokens_per_s: float | None = None
    steps_per_s: float | None = None
    running: float | None = None
    waiting: float | None = None
    waiting_share: float | None = None
    kv_tokens_used: float | None = None
    kv_tokens: float | None = None
    kv_used_ratio: float | None = None
    batch: float | None = None
    cap: float | None = None
    context_tokens: float | None = None
    step_p50_s: float | None = None
    over_reachable: float | None = None
    over_floor: float | None = None
    dummy_share: float | None = None
    reachable_step_s: float | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """How far a quantity lies apart between members; ``lowest`` and ``highest`` are engine labels."""

    name: str
    unit: str
    low: float
    high: float
    lowest: str
    highest: str


@dataclass(frozen=True, slots=True)
class Together:
    """Sums over the members that were counted: None where one of them does not tell. Ratios are ratios of the sums."""

    generated_tokens_per_s: float | None = None
    prefill_tokens_per_s: float | None = None
    running: float | None = None
    waiting: float | None = None
    kv_tokens_used: float | None = None
    kv_tokens: float | None = None
    kv_used_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Balance:
    """What a router could gain: requests that wait at one member while another has a place and KV for them.

    ``tokens_per_s`` is what they would generate there at most; None where it is not known. ``derivation`` says how.
    """

    movable_requests: float
    from_engine: str
    to_engine: str
    tokens_per_s: float | None
    derivation: str


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as a view sees it: each and together.

    ``members`` are those that live and have a window, in the order of the group; the sums are over them.
    ``worst`` is the engine that holds the others back or is held back most, None where nothing stands out, and ``why``
    says so in one line.
    """

    group: Group
    members: tuple[MemberFigures, ...]
    together: Together
    spreads: tuple[Spread, ...] = ()
    balance: Balance | None = None
    worst: str | None = None
    why: str | None = None
