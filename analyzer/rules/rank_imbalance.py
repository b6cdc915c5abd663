"""One rank makes the others wait, or is left behind by them."""

from __future__ import annotations

from dataclasses import dataclass

from rooflens.analyzer.peers import EXPECTED, REACHABLE, SECONDS
from rooflens.analyzer.rules.answers import active_s, cannot_tell, cleared, firing, setting, too_few
from rooflens.analyzer.rules.answers import price as priced
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.rules.lockstep import Stalls, stalls_of
from rooflens.analyzer.rules.slow_rank import UNLIKE, Slow, slow_rank
from rooflens.analyzer.rules.unequal_load import Uneven, uneven
from rooflens.findings import Code, Evidence, Finding, Price, Severity
from rooflens.group_records import GroupKind

CODE = Code.RANK_IMBALANCE
LEAST_COST_RATIO = 0.05  # of the engine's time; less is not worth a change
NO_RANKS = "the other data-parallel ranks: watch their rings, or the metrics page of the server"
NO_FIGURES = "a window of another member of its group"
IN_LOCKSTEP = "the device time of each rank without its waiting: ranks in lockstep all take as long as the slowest"
HELD_AGAINST = {
    REACHABLE: "what is reachable",
    EXPECTED: "the floor with the experts that uniform routing reads",
    SECONDS: "steps of the same batch and context",
}


@dataclass(frozen=True, slots=True)
class _Found:
    """One cause: what to say, the facts, what to do, how sure, what it costs."""

    text: str
    evidence: tuple[Evidence, ...]
    remedy: str
    confidence: float
    price: Price
    slow: bool = False


def rank_imbalance(case: Case) -> Finding:
    """One engine of a group (data-parallel ranks, replicas) holds the others back, or is held back by them.

    Three causes are looked for, and the dearest fires from 5 % of the engine's time on. **A slow rank**: in each of the
    last three windows its steps take at least 15 % longer than those of its peers of the same kind and nearly the same
    batch and context, and more than three times the spread of windows and peers; both as a ratio to what is reachable
    (where the peers' kernels are another table's: to the floor) and in seconds beyond it, so that more or less work
    makes nobody slow. Without bounds only steps of the same size are compared, from 50 % on. Ranks in lockstep all take
    as long as the slowest, so that none is called slow. **A decode step that waits**: of data-parallel ranks on this
    host whose steps end together, decode steps that take half as long again just when another rank computes prompts,
    and three times as often as without. **Unequal load**: in lockstep, a rank whose steps need 15 % more time than the
    mean of all ranks'; else requests that wait in half of the steps while a member has a free place and KV for a tenth
    of them. Only durations are compared between hosts, never their clocks. Alone, or with peers that are alike, it is
    cleared. It is info where the group, or that its devices are equal, is a guess. The price is engine time that the
    engine would have saved at its peers' pace, without the waiting, or with the load shared out evenly.
    """
    peers, info = case.peers, case.info
    if peers.view is None:
        if info is not None and info.data_parallel > 1:
            return cannot_tell(case, CODE, NO_RANKS)
        return cleared(case, CODE, "no other engine of its kind is watched here")
    if few := too_few(case, CODE):
        return few
    if len(peers.view.members) < 2 or peers.own is None:
        return cannot_tell(case, CODE, NO_FIGURES)
    lockstep = peers.view.group.lockstep
    slow = slow_rank(peers) if not lockstep else None
    stalls = stalls_of(case) if peers.view.group.kind is GroupKind.DATA_PARALLEL else None
    load = uneven(case)
    found = [_slow(case, slow), _stalled(case, stalls), _uneven(case, load)]
    dear = [each for each in found if each is not None and _dear(case, each)]
    if dear:
        worst = max(dear, key=lambda each: each.price.saved_s)
        severity = None if _sure(case, worst) else Severity.INFO
        return firing(case, CODE, worst.text, worst.evidence, worst.remedy, worst.confidence, worst.price, severity)
    if slow is not None:
        return cleared(case, CODE, f"its steps take {slow.times:.2f} times its peers' of the same kind and size")
    if lockstep and (stalls is not None or load is not None):
        return cleared(case, CODE, "the ranks step together, with like loads and without waiting for prompts")
    return cannot_tell(case, CODE, IN_LOCKSTEP if lockstep else UNLIKE)


def _dear(case: Case, found: _Found) -> bool:
    judged_s = active_s(case.figures[-1])
    return judged_s > 0 and found.price.saved_s >= LEAST_COST_RATIO * judged_s


def _sure(case: Case, found: _Found) -> bool:
    """Whether nothing of it is a guess: that they are one group, or, of a slow one, that its devices are its peers'."""
    peers = case.peers
    sure = peers.view is not None and not peers.view.group.guessed
    if not found.slow:
        return sure
    alike = {peer.device for peer in peers.others} == {peers.device}
    return alike and (sure or peers.device is not None)


def _slow(case: Case, slow: Slow | None) -> _Found | None:
    if slow is None or not slow.fires:
        return None
    judged_s, peers = active_s(case.figures[-1]), case.peers
    others = "its peer" if slow.compared == 1 else f"the median of {slow.compared} peers"
    evidence = (
        Evidence("times_its_peers", slow.times, "1"),
        Evidence("observed_over_base", slow.own, "1"),
        Evidence("observed_over_base_of_peers", slow.peers, "1"),
        Evidence("base", HELD_AGAINST[slow.basis]),
        Evidence("spread_of_peers_and_windows", slow.spread, "1"),
        Evidence("seconds_lost_each_step", slow.extra_s / slow.steps, "s"),
        Evidence("peers_compared", slow.compared),
        *((Evidence("device", peers.device),) if peers.device else ()),
    )
    price = priced(
        slow.extra_s,
        slow.extra_s - slow.spread * slow.expected_s,
        slow.extra_s + slow.spread * slow.expected_s,
        judged_s,
        f"its steps at the pace of {others} for the same kind and size of steps, give or take the spread",
    )
    text = f"its steps take {slow.times:.2f} times as long as those of {others} for the same work: not more work"
    return _Found(text, evidence, _take_out(case), 0.8 if slow.compared > 1 else 0.7, price, slow=True)


def _take_out(case: Case) -> str:
    look = (
        "compare clocks, power limit, PCIe width and errors of its devices, and what else its host runs, with a peer's"
    )
    view = case.peers.view
    if view is None or view.group.kind is not GroupKind.DATA_PARALLEL:
        return f"{look}; else take it out of the router's list"
    left = str(max(1, len(view.group.members) - 1))
    fewer = setting(case.info, left, "run {} ranks", "--data-parallel-size", "--dp-size")
    return f"{look}; else leave its devices out: {fewer}"


def _stalled(case: Case, stalls: Stalls | None) -> _Found | None:
    if stalls is None or not stalls.fires or case.peers.view is None:
        return None
    group = case.peers.view.group
    peer = group.members[stalls.member][1] if 0 <= stalls.member < len(group.members) else "another"
    evidence = (
        Evidence("decode_steps_that_waited", stalls.count),
        Evidence("share_of_decode_steps", stalls.count / stalls.decode_steps, "1"),
        Evidence("step_while_a_peer_prefills", stalls.stall_s, "s"),
        Evidence("step_otherwise", stalls.plain_s, "s"),
        Evidence("prompt_tokens_of_peers_in_such_a_step", stalls.tokens),
        Evidence("most_prompts_of_engine", peer),
    )
    shared_s = stalls.extra_s * (1.0 - 1.0 / len(group.members))
    price = priced(
        (shared_s + stalls.extra_s) / 2,
        shared_s,
        stalls.extra_s,
        active_s(case.figures[-1]),
        "decode steps beyond a plain one of their size: least where all ranks share every prompt's tokens out evenly, "
        "most where prompts are computed elsewhere",
    )
    chunk = "compute prompts in smaller chunks, so that no rank's step is long, or on other engines{}"
    words = chunk.format("")
    flag = setting(case.info, "", chunk, f"--max-num-batched-tokens: {words}", f"--chunked-prefill-size: {words}")
    text = (
        f"{stalls.count} decode steps took {stalls.stall_s * 1e3:.3g} ms instead of {stalls.plain_s * 1e3:.3g} ms, "
        f"each when another rank (most often {peer}) computed prompts in the same lockstep step"
    )
    return _Found(text, evidence, f"{flag}; give ranks equal prompt tokens, not equal requests", 0.85, price)


def _uneven(case: Case, load: Uneven | None) -> _Found | None:
    if load is None or not load.fires:
        return None
    balance = setting(
        case.info,
        "",
        "send requests by tokens, queue and KV use instead of by turns{}",
        "--data-parallel-hybrid-lb, or a router: by tokens, queue and KV use instead of by turns",
        "--load-balance-method: by tokens, queue and KV use instead of by turns",
    )
    return _Found(load.text, load.evidence, balance, 0.7, load.price)
