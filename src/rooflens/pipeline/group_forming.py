"""Which engines belong together: ranks of one server, prefill and decode, replicas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from rooflens.group_records import Group, GroupKind, Key, Role
from rooflens.live_records import SourceKind
from rooflens.pipeline.group_members import Configurations, Member

LONGEST_LOAD_S = 3600.0  # ranks of one server are started within the time that loading the model takes
BEHIND_ROUTER = "that a router sends to all of them: they have one model and configuration, and share nothing else"
BY_START = "which ranks are of one server: several of its kind run here, told apart by when they started"
OF_ONE_PAGE = "that the engines of one page are ranks of one server"
BY_RANK = "that engines of different pages with different ranks are ranks of one server"
BY_DEEDS = "who computes prompts for whom: by what each was seen to do, and by their model"
BY_MODEL = "who computes prompts for whom: by their model"
Roles = Mapping[Key, tuple[Role, bool]]


def formed(members: Sequence[Member], configurations: Configurations, roles: Roles) -> list[Group]:
    """The groups of these live engines; one is in one group of ranks or of replicas, and in one of prefill and decode.

    An engine whose facts are not known is in none.
    """
    known = sorted((m for m in members if m.info is not None), key=_order)
    ranks = _data_parallel(known, configurations, roles)
    taken = {key for group in ranks for key in group.members}
    rest = [m for m in known if m.key not in taken and (m.info is None or m.info.data_parallel == 1)]
    return [*ranks, *_pairs(known, roles), *_replicas(rest, configurations, roles)]


def _order(member: Member) -> tuple[str, int, str]:
    info = member.info
    return member.view.model_name, info.rank if info is not None else 0, member.view.engine


def _group(kind: GroupKind, members: Sequence[Member], roles: Roles, *guessed: str) -> Group:
    keys = tuple(member.key for member in members)
    first = members[0].view
    return Group(kind, first.model_name, first.engine, keys, tuple(roles[key][0] for key in keys), guessed)


def _data_parallel(members: Sequence[Member], configurations: Configurations, roles: Roles) -> list[Group]:
    """Ranks of one page or log; of one host and configuration that say so; of several pages with a rank each."""
    found: list[Group] = []
    places: dict[tuple[str, str, Role], list[Member]] = defaultdict(list)
    said: dict[tuple[str | None, str], list[Member]] = defaultdict(list)
    single: dict[tuple[str | None, str], list[Member]] = defaultdict(list)
    for member in members:
        if member.place is not None:
            places[member.place, member.view.model_name, roles[member.key][0]].append(member)
        elif member.info is not None and member.info.data_parallel > 1:
            said[member.info.host, configurations.of(member.key, member.info)].append(member)
    for (place, _, _), ranks in places.items():
        if len(ranks) > 1:
            stated = all(m.info is not None and m.info.data_parallel > 1 for m in ranks)
            found.append(_group(GroupKind.DATA_PARALLEL, ranks, roles, *(() if stated else (OF_ONE_PAGE,))))
        elif (info := ranks[0].info) is not None and ranks[0].view.source is SourceKind.METRICS:
            single[urlsplit(place).hostname, configurations.of(ranks[0].key, info)].append(ranks[0])
    for ranks in said.values():
        servers = _servers(ranks)
        guess = (BY_START,) if len(servers) > 1 else ()
        found += [_group(GroupKind.DATA_PARALLEL, server, roles, *guess) for server in servers if len(server) > 1]
    for ranks in single.values():
        numbers = [m.info.rank for m in ranks if m.info is not None]
        if len(ranks) > 1 and len(set(numbers)) == len(numbers) and max(numbers) > 0:
            found.append(_group(GroupKind.DATA_PARALLEL, ranks, roles, BY_RANK))
    return found


def _servers(ranks: Sequence[Member]) -> list[list[Member]]:
    """Ranks of one kind by server: each has a rank once, no more than it says, and all started within a load."""
    servers: list[list[Member]] = []
    for member in sorted(ranks, key=lambda m: (m.info.start_unix_s or 0.0) if m.info else 0.0):
        fits = [server for server in servers if _fits(server, member)]
        if fits:
            fits[-1].append(member)  # the one that started last before it
        else:
            servers.append([member])
    return [sorted(server, key=_order) for server in servers]


def _fits(server: Sequence[Member], member: Member) -> bool:
    info, first = member.info, server[0].info
    if info is None or first is None or len(server) >= info.data_parallel:
        return False
    if any(other.info is not None and other.info.rank == info.rank for other in server):
        return False
    if info.start_unix_s is None or first.start_unix_s is None:
        return True
    return abs(info.start_unix_s - first.start_unix_s) <= LONGEST_LOAD_S


def _pairs(members: Sequence[Member], roles: Roles) -> list[Group]:
    """Engines of one model that only prefill, with those that only decode."""
    models: dict[str, list[Member]] = defaultdict(list)
    for member in members:
        if roles[member.key][0] is not Role.BOTH:
            models[member.view.model_name].append(member)
    found = []
    for parts in models.values():
        if {roles[member.key][0] for member in parts} == {Role.PREFILL, Role.DECODE}:
            guess = BY_DEEDS if any(roles[member.key][1] for member in parts) else BY_MODEL
            found.append(_group(GroupKind.PREFILL_DECODE, parts, roles, guess))
    return found


def _replicas(members: Sequence[Member], configurations: Configurations, roles: Roles) -> list[Group]:
    """Engines of one configuration that do the same part; an engine that states no model is nobody's replica."""
    alike: dict[tuple[str, str, Role], list[Member]] = defaultdict(list)
    for member in members:
        if member.info is not None and (member.info.model_name or member.info.model_config):
            role = roles[member.key][0]
            alike[member.view.model_name, configurations.of(member.key, member.info), role].append(member)
    return [_group(GroupKind.REPLICAS, found, roles, BEHIND_ROUTER) for found in alike.values() if len(found) > 1]
