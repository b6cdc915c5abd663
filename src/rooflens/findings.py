"""The closed vocabulary of findings: every code with its texts, and the record that a rule hands out."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.resources import files
from types import MappingProxyType
from typing import Any


class Code(StrEnum):
    """Every finding there is; a rule can hand out nothing else."""

    ENGINE_STALLED = "engine_stalled"
    MEMORY_BOUND_WASTE = "memory_bound_waste"
    HOST_OVERHEAD = "host_overhead"
    COMMUNICATION_BOUND = "communication_bound"
    KV_PRESSURE = "kv_pressure"
    KV_WASTE = "kv_waste"
    MISSED_BATCHING = "missed_batching"
    SPECULATION_MISSED = "speculation_missed"
    SPECULATION_HARMFUL = "speculation_harmful"
    SPECULATION_DEPTH = "speculation_depth"
    PREFILL_INTERFERENCE = "prefill_interference"
    DISAGGREGATION = "disaggregation"
    LONG_CONTEXT = "long_context"
    MOE_EXPERT_READS = "moe_expert_reads"
    QUANTIZATION = "quantization"
    PREFIX_CACHE = "prefix_cache"
    THROTTLING = "throttling"
    RANK_IMBALANCE = "rank_imbalance"
    UNDERUTILIZED = "underutilized"
    CONFIGURATION = "configuration"
    DRIFT = "drift"
    MEASUREMENT_INVALID = "measurement_invalid"
    INSUFFICIENT_INPUT = "insufficient_input"


class Severity(StrEnum):
    """How soon somebody should look: INFO when there is time, WARNING today, CRITICAL now."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Status(StrEnum):
    """A rule's three answers; CANNOT_TELL names what is missing and is never a quiet no."""

    FIRING = "firing"
    CLEARED = "cleared"
    CANNOT_TELL = "cannot_tell"


@dataclass(frozen=True, slots=True)
class FindingCode:
    """One code and its texts.

    ``severity`` is the usual one, a rule may raise or lower it; ``decided`` is the evidence it takes;
    ``flags`` maps an engine to its own settings; ``wrong_when`` says when to distrust the finding.
    """

    code: Code
    title: str
    severity: Severity
    meaning: str
    decided: str
    remedy: str
    flags: Mapping[str, str]
    wrong_when: str

    @property
    def runbook(self) -> str:
        """Where the on-call page of this code is, relative to the repository."""
        return f"docs/findings.md#{self.code}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One fact behind a finding; ``unit`` is an SI unit, "1" for a ratio, "" for a word or a count."""

    name: str
    value: float | int | str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Price:
    """What the cause cost over the judged steps, from re-evaluating them under the change.

    ``saved_s`` is engine time in seconds that the change would have saved out of ``judged_s``, with its
    interval; ``derivation`` says how it was computed, in words.
    """

    saved_s: float
    judged_s: float
    saved_low_s: float
    saved_high_s: float
    derivation: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule's answer about one engine.

    ``summary`` is one line for a person; ``price`` is None where the cause has none or it is not known;
    ``confidence`` is a probability from 0 to 1, None where it was not estimated; ``remedy`` names the
    engine's own flag and value; ``missing`` is what a CANNOT_TELL would need; times are Unix seconds.
    """

    code: Code
    severity: Severity
    status: Status
    summary: str
    instance: str | None = None
    evidence: tuple[Evidence, ...] = ()
    price: Price | None = None
    confidence: float | None = None
    remedy: str | None = None
    missing: tuple[str, ...] = ()
    since_unix_s: float | None = None
    until_unix_s: float | None = None

    def __post_init__(self) -> None:
        if self.status is Status.CANNOT_TELL and not self.missing:
            raise ValueError(f"{self.code}: cannot_tell must name what is missing")
        if self.confidence is not None and not 0.0 <= self.confidence <= 1.0:
            raise ValueError(f"{self.code}: confidence {self.confidence} is not a probability")

    @property
    def runbook(self) -> str:
        """Where the on-call page of this finding's code is, relative to the repository."""
        return FINDINGS[self.code].runbook

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict; unknown fields are left out."""
        data = {key: value for key, value in asdict(self).items() if value is not None}
        return {**data, "runbook": self.runbook}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Finding:
        """The inverse of to_json."""
        rest = {key: value for key, value in data.items() if key in cls.__dataclass_fields__}
        price = rest.get("price")
        rest["price"] = Price(**price) if price is not None else None
        rest["evidence"] = tuple(Evidence(**fact) for fact in rest.get("evidence", ()))
        rest["missing"] = tuple(rest.get("missing", ()))
        rest["code"], rest["status"] = Code(rest["code"]), Status(rest["status"])
        rest["severity"] = Severity(rest["severity"])
        return cls(**rest)


def _load() -> Mapping[Code, FindingCode]:
    """The table, in the order of Code; KeyError if a code has no text, TypeError if a text is amiss."""
    texts = tomllib.loads(files("rooflens").joinpath("findings.toml").read_text(encoding="utf-8"))
    table = {}
    for code in Code:
        text = texts.pop(code.value)
        flags = {engine: text.pop(engine) for engine in ("vllm", "sglang")}
        severity = Severity(text.pop("severity"))
        table[code] = FindingCode(code=code, severity=severity, flags=MappingProxyType(flags), **text)
    if texts:
        raise KeyError(f"findings.toml knows codes that Code does not: {sorted(texts)}")
    return MappingProxyType(table)


FINDINGS: Mapping[Code, FindingCode] = _load()


def lookup(code: str) -> FindingCode:
    """The texts of a code given as a string; KeyError that lists the codes."""
    try:
        return FINDINGS[Code(code)]
    except ValueError:
        known = ", ".join(sorted(FINDINGS))
        raise KeyError(f"no finding is called {code!r}; there are: {known}") from None
