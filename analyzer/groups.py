"""Engines that belong together: each and together, how far apart they are, and what sharing out better would gain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from rooflens.findings import Code, Finding, Status
from rooflens.group_records import Balance, Group, GroupView, MemberFigures, Role, Spread, Together

QUEUED_SHARE = 0.5  # of the steps: a queue that is there half of the time is not a burst
ROOM_KV_RATIO = 0.9  # of the pool, up to which a router may fill it without making anybody wait
LEAST_MOVABLE = 1.0  # requests
APART_RATIO = 1.15  # of the median: less is no slower member
# What is compared between members: the field, its unit, what it is called.
COMPARED = (
    ("generated_tokens_per_s", "", "generated tokens a second"),
    ("running", "", "running"),
    ("waiting", "", "waiting"),
    ("batch", "", "batch"),
    ("kv_used_ratio", "1", "KV used"),
    ("step_p50_s", "s", "step"),
    ("over_reachable", "1", "observed over reachable"),
    ("over_floor", "1", "observed over floor"),
    ("dummy_share", "1", "dummy steps"),
)
Found = Callable[[str], Sequence[Finding]]  # the findings of the member with this engine label


def group_view(group: Group, members: Sequence[MemberFigures], found: Found = lambda _engine: ()) -> GroupView:
    """The group with the figures of its live ``members`` beside each other; ``found`` gives a member's findings."""
    balance = balance_of(members)
    worst, why = _worst(group, members, balance, found)
    return GroupView(
        group=group,
        members=tuple(members),
        together=together(members),
        spreads=tuple(spreads(members)),
        balance=balance,
        worst=worst,
        why=why,
    )


def together(members: Sequence[MemberFigures]) -> Together:
    """Counts and rates added up, never ratios: that of the pools is used tokens over all of them."""

    def added(name: str) -> float | None:
        values = [getattr(member, name) for member in members]
        return sum(values) if values and all(value is not None for value in values) else None

    used, pool = added("kv_tokens_used"), added("kv_tokens")
    return Together(
        generated_tokens_per_s=added("generated_tokens_per_s"),
        prefill_tokens_per_s=added("prefill_tokens_per_s"),
        running=added("running"),
        waiting=added("waiting"),
        kv_tokens_used=used,
        kv_tokens=pool,
        kv_used_ratio=used / pool if used is not None and pool else None,
    )


def spreads(members: Sequence[MemberFigures]) -> list[Spread]:
    """Of each quantity that at least two members tell: the lowest and the highest, and whose they are."""
    found = []
    for name, unit, _ in COMPARED:
        told = [(value, member.engine) for member in members if (value := getattr(member, name)) is not None]
        if len(told) >= 2:
            (low, lowest), (high, highest) = min(told), max(told)
            found.append(Spread(name, unit, low, high, lowest, highest))
    return found


def balance_of(members: Sequence[MemberFigures]) -> Balance | None:
    """Requests that wait at one member for half of its steps while another has a place in its batch and KV for them.

    Only members that do the same part are compared. None where nobody waits, nobody has room, or the pools are not
    known: a request may wait for what nobody has.
    """
    found = [_balance([m for m in members if m.role is role]) for role in Role]
    return max((each for each in found if each is not None), key=lambda each: each.movable_requests, default=None)


def _balance(members: Sequence[MemberFigures]) -> Balance | None:
    queued = [m for m in members if (m.waiting or 0.0) >= LEAST_MOVABLE and (m.waiting_share or 1.0) >= QUEUED_SHARE]
    running, used = sum(m.running or 0.0 for m in members), sum(m.kv_tokens_used or 0.0 for m in members)
    if not queued or not running or not used:
        return None
    places = [(room, m) for m in members if (room := _room(m, members, used / running)) >= LEAST_MOVABLE]
    if not places:
        return None
    longest = max(queued, key=lambda m: m.waiting or 0.0)
    room, emptiest = max(places, key=lambda place: place[0])
    movable = min(sum(m.waiting or 0.0 for m in queued), sum(place for place, _ in places))
    rates = [m.generated_tokens_per_s / m.running for m in members if m.generated_tokens_per_s and m.running]
    return Balance(
        movable_requests=movable,
        from_engine=longest.engine,
        to_engine=emptiest.engine,
        tokens_per_s=movable * min(rates) if rates else None,
        derivation="waiting requests that fit into free places of the batch and 90 % of the KV pool elsewhere, at the "
        "slowest member's tokens a second for each running request: an upper bound, since larger batches step slower",
    )


def _room(member: MemberFigures, members: Sequence[MemberFigures], tokens_each: float) -> float:
    """Requests of the group's mean size for which this member has both a place and KV; 0 where it has a queue."""
    if (member.waiting is None or member.waiting >= LEAST_MOVABLE) or member.running is None:
        return 0.0
    if member.kv_tokens is None or member.kv_tokens_used is None:
        return 0.0
    cap = member.cap or max((m.running or 0.0 for m in members), default=0.0)
    free_tokens = ROOM_KV_RATIO * member.kv_tokens - member.kv_tokens_used
    return float(max(0.0, min(cap - member.running, free_tokens / max(tokens_each, 1.0))) // 1)


def _worst(
    group: Group, members: Sequence[MemberFigures], balance: Balance | None, found: Found
) -> tuple[str | None, str | None]:
    """The member that stands out and why: by its finding, else by a queue, else by its distance from what it could."""
    for member in members:
        for finding in found(member.engine):
            if finding.code is Code.RANK_IMBALANCE and finding.status is Status.FIRING:
                return member.engine, finding.summary
    if balance is not None:
        moved = f"{balance.movable_requests:.0f} requests could run elsewhere: engine {balance.to_engine} has room"
        return balance.from_engine, moved
    told = [(m.over_reachable, m.engine) for m in members if m.over_reachable is not None]
    if len(told) < 2 or group.lockstep:
        return None, None
    (slowest, engine), usual = max(told), median(value for value, _ in told)
    if slowest < APART_RATIO * usual:
        return None, None
    return engine, f"its steps take {slowest:.2f} times what is reachable, the others' {usual:.2f} times"
