"""One message, checked field by field: by name where it is a map, by position where it is an array."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

VERSION = 1
LARGEST = 2**53  # beyond it a number is no count that a float could hold
LONGEST_WORD = 128
MOST_NAMED = 8


class NotReadError(Exception):
    """Why a message says nothing that can be trusted, in a few words."""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """The sequences of one pass; tokens are sums over them, variances those of the population.

    ``prefill_length_variance`` is of whole prompts, not of the parts computed; None where it is not told.
    ``prefill_kv_tokens`` were in the cache already. ``decode_kv_tokens`` are the contexts of decoding sequences:
    vLLM counts what is in the cache before the pass, SGLang and TensorRT-LLM one more for each sequence.
    """

    prefill_requests: int
    prefill_tokens: int
    prefill_kv_tokens: int
    decode_requests: int
    decode_kv_tokens: int
    prefill_length_variance: float | None = None
    decode_kv_variance: float | None = None


@dataclass(frozen=True, slots=True)
class Queued:
    """Sequences that wait: on their prompt, or preempted (or fetching their cache from another engine)."""

    prefill_requests: int
    decode_requests: int


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """One message. ``timing_scope`` is what ``wall_time_s`` spans, in the engine's word, None where it does not say.

    ``version`` and ``counter`` are None in Dynamo's first form. ``unknown`` are fields that this version does not know.
    """

    version: int | None
    worker: str
    dp_rank: int
    counter: int | None
    wall_time_s: float
    scheduled: Scheduled
    queued: Queued | None
    timing_scope: str | None = None
    unknown: tuple[str, ...] = ()

    @property
    def idle(self) -> bool:
        """Whether it only says that the engine is there: nothing was scheduled and no time passed."""
        s = self.scheduled
        return not (self.wall_time_s or s.prefill_requests or s.decode_requests)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST else None


def _amount(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= 1e300:
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _word(value: Any) -> str | None:
    return value[:LONGEST_WORD] if isinstance(value, str) else None


def _map(value: Any) -> Any:
    return value if isinstance(value, Mapping | list | tuple) else None


Check = Callable[[Any], Any]
# The fields in their order on the wire, with what each has to be. A variance may be left out.
SCHEDULED: Mapping[str, Check] = {
    "num_prefill_requests": _count,
    "sum_prefill_tokens": _count,
    "var_prefill_length": _amount,
    "sum_prefill_kv_tokens": _count,
    "num_decode_requests": _count,
    "sum_decode_kv_tokens": _count,
    "var_decode_kv_tokens": _amount,
}
QUEUED: Mapping[str, Check] = {
    "num_prefill_requests": _count,
    "sum_prefill_tokens": _count,
    "var_prefill_length": _amount,
    "num_decode_requests": _count,
    "sum_decode_kv_tokens": _count,
    "var_decode_kv_tokens": _amount,
}
PASS: Mapping[str, Check] = {
    "version": _count,
    "worker_id": _word,
    "dp_rank": _count,
    "counter_id": _count,
    "wall_time": _amount,
    "scheduled_requests": _map,
    "queued_requests": _map,
}
# The pull request that brings it to vLLM puts one field in the midst.
VLLM_PASS: Mapping[str, Check] = {
    **{name: PASS[name] for name in ("version", "worker_id", "dp_rank", "counter_id")},
    "timing_scope": _word,
    **{name: PASS[name] for name in ("wall_time", "scheduled_requests", "queued_requests")},
}
OPTIONAL = {"var_prefill_length", "var_decode_kv_tokens", "timing_scope", "queued_requests", "version", "counter_id"}
OPTIONAL |= {"worker_id", "dp_rank"}  # their defaults are those of the engines: "" and 0


def forward_pass(message: object) -> ForwardPass:
    """The message, a map or an array as msgpack or JSON gives it; NotReadError where it cannot be trusted.

    Of a map with another version, or an array with another version or arity, nothing is taken. An array that is longer
    than its version's gives the places that are known; the others are told in ``unknown``.
    """
    unknown: list[str] = []
    fields = _fields(message, _pass_layout(message), "", unknown)
    scheduled = _fields(fields["scheduled_requests"], SCHEDULED, "scheduled_requests.", unknown)
    queued = None
    if (waiting := fields.get("queued_requests")) is not None:
        counts = _fields(waiting, QUEUED, "queued_requests.", unknown)
        queued = Queued(counts["num_prefill_requests"], counts["num_decode_requests"])
    return ForwardPass(
        version=fields.get("version"),
        worker=fields.get("worker_id") or "",
        dp_rank=fields.get("dp_rank") or 0,
        counter=fields.get("counter_id"),
        wall_time_s=fields["wall_time"],
        scheduled=_consistent(scheduled),
        queued=queued,
        timing_scope=fields.get("timing_scope"),
        unknown=tuple(unknown[:MOST_NAMED]),
    )


def _pass_layout(message: object) -> Mapping[str, Check]:
    """Which fields to expect, by the version; for an array also by its fifth place, where the two forms part."""
    if isinstance(message, Mapping):
        version = message.get("version")
        if "version" in message and (type(version) is not int or version != VERSION):
            raise NotReadError(f"version {_shown(version)}")
        return VLLM_PASS
    if not isinstance(message, list | tuple):
        raise NotReadError(f"{_shown(message)}, which is no message")
    if not message or type(message[0]) is not int or message[0] != VERSION:
        raise NotReadError(f"version {_shown(message[0])}" if message else "an empty array")
    return VLLM_PASS if len(message) > 4 and isinstance(message[4], str) else PASS


def _fields(value: Any, layout: Mapping[str, Check], where: str, unknown: list[str]) -> dict[str, Any]:
    """The checked fields by name; what is beyond the layout goes into ``unknown``."""
    if isinstance(value, Mapping):
        given = {name: value[name] for name in layout if name in value}
        further = [str(name) for name in value if name not in layout] if len(value) > len(given) else []
        unknown += [f"{where}{_plain(name)}" for name in further[:MOST_NAMED]]
    else:
        given = _places(value, layout, where)
        if len(value) > len(layout):
            unknown.append(f"{where}places {len(layout) + 1} to {len(value)}")
    fields = {}
    for name, check in layout.items():
        if name not in given:
            if name not in OPTIONAL:
                raise NotReadError(f"no {where}{name}")
            continue
        fields[name] = check(given[name])
        if fields[name] is None:
            raise NotReadError(f"{where}{name} is {_shown(given[name])}")
    return fields


def _places(value: Sequence[Any], layout: Mapping[str, Check], where: str) -> dict[str, Any]:
    if len(value) < len(layout):
        raise NotReadError(f"{where or 'an array '}of {len(value)} places where version {VERSION} has {len(layout)}")
    return dict(zip(layout, value, strict=False))


def _consistent(fields: Mapping[str, Any]) -> Scheduled:
    """The counts; NotReadError where there are tokens of nobody, as every shift of positions would give."""
    prefills, decodes = fields["num_prefill_requests"], fields["num_decode_requests"]
    if not prefills and (fields["sum_prefill_tokens"] or fields["sum_prefill_kv_tokens"]):
        raise NotReadError("prompt tokens without a request")
    if not decodes and fields["sum_decode_kv_tokens"]:
        raise NotReadError("decode contexts without a request")
    return Scheduled(
        prefill_requests=prefills,
        prefill_tokens=fields["sum_prefill_tokens"],
        prefill_kv_tokens=fields["sum_prefill_kv_tokens"],
        decode_requests=decodes,
        decode_kv_tokens=fields["sum_decode_kv_tokens"],
        prefill_length_variance=fields.get("var_prefill_length"),
        decode_kv_variance=fields.get("var_decode_kv_tokens"),
    )


def _plain(name: str) -> str:
    return "".join(char if char.isascii() and char.isprintable() else "?" for char in name[:40])


def _shown(value: object) -> str:
    """A value in a few characters: never text, which may be anybody's."""
    if isinstance(value, bool | int | float):
        return str(value) if not isinstance(value, int) or abs(value) < LARGEST else "a huge number"
    return {"NoneType": "nothing", "str": "text", "bytes": "bytes"}.get(type(value).__name__, "another type")
