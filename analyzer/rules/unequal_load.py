"""One member of a group has more to do than the others."""

from __future__ import annotations

from dataclasses import dataclass

from rooflens.analyzer.groups import QUEUED_SHARE
from rooflens.analyzer.rules.answers import active_s
from rooflens.analyzer.rules.answers import price as priced
from rooflens.analyzer.rules.case import Case
from rooflens.findings import Evidence, Price
from rooflens.group_records import GroupView, MemberFigures

LEAST_ABOVE_MEAN = 0.15  # of a lockstep step's time: less is what chance leaves with requests that come and go
LEAST_MOVABLE_SHARE = 0.1  # of the requests here: less is not worth sending elsewhere


@dataclass(frozen=True, slots=True)
class Uneven:
    """What to say of the load of one member beside the others'; ``fires`` where it matters."""

    fires: bool
    text: str
    evidence: tuple[Evidence, ...]
    price: Price


def uneven(case: Case) -> Uneven | None:
    """The load of the judged engine beside that of its group; None where too little of it is known."""
    view, own = case.peers.view, case.peers.own
    if view is None or own is None:
        return None
    return _in_lockstep(case, view, own) if view.group.lockstep else _queue(case, view, own)


def _in_lockstep(case: Case, view: GroupView, own: MemberFigures) -> Uneven | None:
    """A step of all lasts as long as the longest needs: what the most loaded rank needs beyond the mean is lost."""
    needed = [member.reachable_step_s for member in view.members if member.reachable_step_s is not None]
    if own.reachable_step_s is None or len(needed) < len(view.members):
        return None
    mean_s, judged_s = sum(needed) / len(needed), active_s(case.figures[-1])
    above = own.reachable_step_s / mean_s - 1.0 if mean_s > 0 else 0.0
    most = own.reachable_step_s >= max(needed)
    steps = case.figures[-1].steps
    least_s = steps * (own.reachable_step_s - mean_s)
    most_s = case.figures[-1].busy_s * (1.0 - mean_s / own.reachable_step_s)
    price = priced(
        (least_s + most_s) / 2,
        min(least_s, most_s),
        max(least_s, most_s),
        judged_s,
        "steps as long as the mean rank needs instead of the most loaded one: by what is reachable, to the same share "
        "of the observed time",
    )
    idle = max((m.dummy_share for m in view.members if m.dummy_share is not None), default=None)
    evidence = (
        Evidence("step_needs", own.reachable_step_s, "s"),
        Evidence("step_needs_mean_of_ranks", mean_s, "s"),
        *_beside("running", own.running, [m.running for m in view.members]),
        *_beside("context_tokens", own.context_tokens, [m.context_tokens for m in view.members]),
        *_beside(
            "generated_tokens_per_s", own.generated_tokens_per_s, [m.generated_tokens_per_s for m in view.members]
        ),
        *((Evidence("dummy_steps_of_the_idlest_rank", idle, "1"),) if idle is not None else ()),
    )
    text = f"its steps need {above:.0%} more time than the ranks' mean, and all ranks wait for it"
    return Uneven(most and above >= LEAST_ABOVE_MEAN, text, evidence, price)


def _queue(case: Case, view: GroupView, own: MemberFigures) -> Uneven | None:
    """Requests wait here while another member has room for them."""
    balance, waiting = view.balance, own.waiting
    if waiting is None:
        return None
    if balance is None or waiting < 1.0 or (own.waiting_share or 1.0) < QUEUED_SHARE:
        return None
    here = (own.running or 0.0) + waiting
    queued = sum(m.waiting or 0.0 for m in view.members)
    movable = min(waiting, balance.movable_requests * waiting / queued)
    share, judged_s = movable / here, active_s(case.figures[-1])
    price = priced(
        judged_s * share / 2,
        0.0,
        judged_s * share,
        judged_s,
        "the part of its requests that could run elsewhere: none where their prefixes are only here, all of it where "
        "they are not, and the middle of both",
    )
    evidence = (
        Evidence("requests_waiting_here", waiting),
        Evidence("requests_with_room_elsewhere", movable),
        Evidence("engine_with_room", balance.to_engine),
        *_beside("running", own.running, [m.running for m in view.members]),
        *_beside("kv_used_ratio", own.kv_used_ratio, [m.kv_used_ratio for m in view.members], "1"),
        *((Evidence("generated_tokens_per_s_gained_at_most", balance.tokens_per_s),) if balance.tokens_per_s else ()),
    )
    text = f"{waiting:.0f} requests wait here while engine {balance.to_engine} has room for {movable:.0f} of them"
    return Uneven(share >= LEAST_MOVABLE_SHARE, text, evidence, price)


def _beside(name: str, own: float | None, all_of: list[float | None], unit: str = "") -> tuple[Evidence, ...]:
    """A figure and the mean of it over those members that tell; a mean of ratios is a mean and never a sum."""
    known = [value for value in all_of if value is not None]
    if own is None or not known:
        return ()
    return Evidence(name, own, unit), Evidence(f"{name}_mean_of_members", sum(known) / len(known), unit)
