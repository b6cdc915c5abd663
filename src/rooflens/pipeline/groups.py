"""The engines of a watch that belong together: formed anew each turn, compared, and each told of the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rooflens.analyzer.groups import group_view
from rooflens.analyzer.peers import MOST_PEERS, Peer, Peers, Prompts
from rooflens.findings import Finding
from rooflens.group_records import Group, GroupKind, GroupView, Key, MemberFigures
from rooflens.pipeline.group_forming import formed
from rooflens.pipeline.group_members import Configurations, Member, member_figures, role_of
from rooflens.pipeline.prompt_history import PromptHistory, prompts_of

LOOKS = 32  # turns over which steps are counted, to see whether ranks step together
LEAST_STEPS = 50  # in them
SAME_RATE, SAME_STEPS = 0.01, 2  # of the steps, and steps: counts of ranks in lockstep differ by no more


@dataclass(slots=True)
class _Kept:
    """What is kept of one member from turn to turn."""

    prompts: PromptHistory
    sequences: deque[int]
    dummies: bool = False


class Groups:
    """Forms the groups of a watch; what a turn costs grows with the number of engines and no faster.

    ``views`` are those of the last look, none after one that failed.
    """

    def __init__(self) -> None:
        self.views: tuple[GroupView, ...] = ()
        self._configurations = Configurations()
        self._kept: dict[Key, _Kept] = {}

    def look(self, members: Sequence[Member], read_monotonic_s: float, now_unix_s: float) -> tuple[GroupView, ...]:
        """The groups of these live engines, whose sources were read from ``read_monotonic_s`` on."""
        self.views = ()
        by_key = {member.key: member for member in members}
        roles = {key: role_of(member.view, member.beside.handed) for key, member in by_key.items()}
        self._kept = {key: kept for key, kept in self._kept.items() if key in by_key}
        self._configurations.keep(frozenset(by_key))
        views = []
        told: set[Key] = set()
        for group in formed(members, self._configurations, roles):
            parts = [by_key[key] for key in group.members]
            if group.kind is GroupKind.DATA_PARALLEL:
                group = replace(group, lockstep=self._lockstep(group, parts))
            told_of = zip(parts, group.roles, strict=True)
            each = {part.key: member_figures(part.view, role, now_unix_s) for part, role in told_of}
            figures = {key: found for key, found in each.items() if found is not None}
            findings = {part.view.engine: part.view.findings for part in parts}
            view = group_view(group, list(figures.values()), partial(_found, findings))
            views.append(view)
            if group.kind is not GroupKind.PREFILL_DECODE:
                self._tell(view, parts, figures, read_monotonic_s)
                told |= set(group.members)
        for key in by_key.keys() - told:
            by_key[key].beside.told = Peers
        self.views = tuple(views)
        return self.views

    def _lockstep(self, group: Group, parts: Sequence[Member]) -> bool | None:
        """Ranks that run dummy steps for each other or share experts step together, or whose steps are as many."""
        for part in parts:
            kept = self._kept.setdefault(part.key, _Kept(PromptHistory(), deque(maxlen=LOOKS)))
            windows = part.view.windows
            kept.dummies = kept.dummies or bool(windows and windows[-1].kinds.get("dummy"))
            recent = part.view.recent
            if len(recent) and "sequence" in recent.columns and part.exact:
                kept.sequences.append(int(recent["sequence"][-1]))
        if any(self._kept[key].dummies for key in group.members) or any(_has_experts(part) for part in parts):
            return True
        seen = [self._kept[key].sequences for key in group.members]
        counts = [sequences[-1] - sequences[0] for sequences in seen if len(sequences) == LOOKS]
        if len(counts) < len(parts) or max(counts) < LEAST_STEPS:
            return None
        return max(counts) - min(counts) <= SAME_STEPS + SAME_RATE * max(counts)

    def _tell(
        self, view: GroupView, parts: Sequence[Member], figures: Mapping[Key, MemberFigures], read_monotonic_s: float
    ) -> None:
        """Hand each member what it is compared with; what that is of prompts is worked out when it is asked for."""
        prompts = None
        if view.group.kind is GroupKind.DATA_PARALLEL and all(part.exact for part in parts):
            for part in parts:
                self._kept[part.key].prompts.take(part.view.recent, read_monotonic_s)
            prompts = _Once([self._kept[part.key].prompts for part in parts])
        peers = [Peer(part.view.engine, part.beside.windows, part.device) for part in parts if part.key in figures]
        places = {peer.engine: place for place, peer in enumerate(peers)}
        for part in parts:
            place = places.get(part.view.engine, 0)
            others = (*peers[place + 1 :][:MOST_PEERS], *peers[: min(place, MOST_PEERS)])
            chosen = tuple(peer for peer in others if peer.engine != part.view.engine)[:MOST_PEERS]
            part.beside.told = partial(_peers, view, part.view.engine, chosen, prompts, part.device)


class _Once:
    """The prompts of a group as of one turn, put together at the first call."""

    def __init__(self, histories: Sequence[PromptHistory]) -> None:
        self._histories, self._done = histories, False
        self._found: Prompts | None = None

    def __call__(self) -> Prompts | None:
        if not self._done:
            self._found, self._done = prompts_of(self._histories), True
        return self._found


def _found(findings: Mapping[str, tuple[Finding, ...]], engine: str) -> tuple[Finding, ...]:
    return findings.get(engine, ())


def _peers(view: GroupView, engine: str, others: tuple[Peer, ...], prompts: _Once | None, device: str | None) -> Peers:
    return Peers(view, engine, (), others, prompts() if prompts is not None else None, device)


def _has_experts(member: Member) -> bool:
    """Whether the model is a mixture, whose data-parallel ranks exchange tokens in every layer."""
    config = member.info.model_config if member.info is not None else None
    texts = [config or {}, (config or {}).get("text_config") or {}]
    return any(
        "expert" in name and isinstance(value, int) and not isinstance(value, bool) and value > 1
        for text in texts
        if isinstance(text, Mapping)
        for name, value in text.items()
    )
