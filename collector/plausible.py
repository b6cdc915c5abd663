"""What a device cannot have told: figures beyond what is known of it, or beyond any device; they are left out.

Drivers answer the largest integer, or a value of another field, where they have nothing to tell.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import Any

from rooflens.device_records import DeviceFacts, DeviceSample

# No device of today comes near these; whatever is above stands for nothing.
MOST_POWER_W = 20_000.0
MOST_CLOCK_HZ = 1e11
MOST_BANDWIDTH_BYTES_PER_S = 2e14  # of DRAM
MOST_LINK_BYTES_PER_S = 2e13  # of all NVLinks, or C2C links, together
MOST_PCIE_BYTES_PER_S = 2e12  # sixteen lanes of PCIe 7 move an eighth of it
MOST_MEMORY_BYTES = float(1 << 50)
MOST_TEMPERATURE_CELSIUS = 250.0
# Beside what a device says of itself: it draws more than its limit for a moment, clocks are rounded.
POWER_ROOM, CLOCK_ROOM, MEMORY_ROOM = 2.0, 1.25, 1.01

_LINKS = (
    ("PCIe", "pcie", MOST_PCIE_BYTES_PER_S),
    ("NVLink", "nvlink", MOST_LINK_BYTES_PER_S),
    ("C2C", "c2c", MOST_LINK_BYTES_PER_S),
)
_RATES = tuple(
    (f"{link}_{way}_bytes_per_s", f"the {name} rate", most) for name, link, most in _LINKS for way in ("tx", "rx")
)
_NOW = (
    ("sm_clock_hz", "the SM clock of now"),
    ("memory_clock_hz", "the memory clock of now"),
    ("power_w", "the power of now"),
    ("energy_j", "the energy of a window"),
    ("memory_used_bytes", "the used memory"),
)
_FIGURES = (*_NOW, *((name, words) for name, words, _ in _RATES))
_figures_of = attrgetter(*(name for name, _ in _FIGURES))
_MOST_RATES = tuple(most for _, _, most in _RATES)
_FACTS = (
    ("memory_bytes", "the memory's size", MOST_MEMORY_BYTES),
    ("memory_bandwidth_bytes_per_s", "the memory's bandwidth", MOST_BANDWIDTH_BYTES_PER_S),
    ("sm_clock_max_hz", "the SM clock's highest", MOST_CLOCK_HZ),
    ("memory_clock_max_hz", "the memory clock's highest", MOST_CLOCK_HZ),
    ("power_limit_w", "the limit of its power", MOST_POWER_W),
    ("power_limit_max_w", "the highest limit of its power", MOST_POWER_W),
)


def plausible_facts(facts: DeviceFacts) -> tuple[DeviceFacts, tuple[str, ...]]:
    """The facts without those that no device can have, and in words which those were."""
    told = ((name, words, getattr(facts, name), most) for name, words, most in _FACTS)
    beyond = {name: words for name, words, value, most in told if value is not None and not 0.0 <= value <= most}
    return _without(facts, beyond), tuple(beyond.values())


def plausible(sample: DeviceSample, facts: DeviceFacts | None = None) -> tuple[DeviceSample, tuple[str, ...]]:
    """The sample without figures that cannot be, and in words which those were.

    Clocks, power and used memory are held against what the device says of itself, energy against its power limit for as
    long as the window may have been, the time of a throttle reason against the window.
    """
    window_s = sample.span_s + 2 * sample.slack_s
    known = facts or DeviceFacts(sample.uuid, sample.source)
    power_w = _limit(known.power_limit_max_w or known.power_limit_w, POWER_ROOM, MOST_POWER_W)
    clock_hz = _limit(known.sm_clock_max_hz, CLOCK_ROOM, MOST_CLOCK_HZ)
    memory_clock_hz = _limit(known.memory_clock_max_hz, CLOCK_ROOM, MOST_CLOCK_HZ)
    memory_bytes = _limit(known.memory_bytes, MEMORY_ROOM, MOST_MEMORY_BYTES)
    most = (clock_hz, memory_clock_hz, power_w, power_w * window_s, memory_bytes, *_MOST_RATES)
    told = zip(_FIGURES, _figures_of(sample), most, strict=True)
    beyond = {name: words for (name, words), value, limit in told if value is not None and not 0.0 <= value <= limit}
    celsius = sample.temperature_celsius
    if celsius is not None and not abs(celsius) <= MOST_TEMPERATURE_CELSIUS:
        beyond["temperature_celsius"] = "the temperature of now"
    if all(0.0 <= spent_s <= window_s for spent_s in sample.throttled_s.values()):
        return _without(sample, beyond), tuple(beyond.values())
    held = {reason: spent_s for reason, spent_s in sample.throttled_s.items() if 0.0 <= spent_s <= window_s}
    return replace(_without(sample, beyond), throttled_s=held), (*beyond.values(), "the time throttled")


def _limit(told: float | None, room: float, most: float) -> float:
    return min(told * room, most) if told else most


def _without(record: Any, beyond: dict[str, str]) -> Any:
    return replace(record, **dict.fromkeys(beyond)) if beyond else record
