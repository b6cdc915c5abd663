"""What a device cannot have told: figures beyond what is known of it, or beyond any device; they are left out.

Drivers answer the largest integer, or a value of another field, where they have nothing to tell.
"""

from __future__ import annotations

from dataclasses import replace
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
POWER_ROOM, CLOCK_ROOM, MEMORY_ROOM = 2.0, 1.5, 1.01

_LINKS = (
    ("PCIe", "pcie", MOST_PCIE_BYTES_PER_S),
    ("NVLink", "nvlink", MOST_LINK_BYTES_PER_S),
    ("C2C", "c2c", MOST_LINK_BYTES_PER_S),
)
_RATES = tuple(
    (f"{link}_{way}_bytes_per_s", f"the {name} rate", most) for name, link, most in _LINKS for way in ("tx", "rx")
)
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
    beyond = {name: words for name, words, most in _FACTS if _is_beyond(getattr(facts, name), most)}
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
    bounds = (
        ("sm_clock_hz", "the SM clock of now", clock_hz),
        ("memory_clock_hz", "the memory clock of now", memory_clock_hz),
        ("power_w", "the power of now", power_w),
        ("energy_j", "the energy of a window", power_w * window_s),
        ("memory_used_bytes", "the used memory", memory_bytes),
        *_RATES,
    )
    beyond = {name: words for name, words, most in bounds if _is_beyond(getattr(sample, name), most)}
    celsius = sample.temperature_celsius
    if celsius is not None and not abs(celsius) <= MOST_TEMPERATURE_CELSIUS:
        beyond["temperature_celsius"] = "the temperature of now"
    held = {reason: spent_s for reason, spent_s in sample.throttled_s.items() if 0.0 <= spent_s <= window_s}
    if len(held) == len(sample.throttled_s):
        return _without(sample, beyond), tuple(beyond.values())
    return replace(_without(sample, beyond), throttled_s=held), (*beyond.values(), "the time throttled")


def _limit(told: float | None, room: float, most: float) -> float:
    return min(told * room, most) if told else most


def _is_beyond(value: float | None, most: float) -> bool:
    """Whether it is known and not between 0 and ``most``; what is not a number is beyond as well."""
    return value is not None and not 0.0 <= value <= most


def _without(record: Any, beyond: dict[str, str]) -> Any:
    return replace(record, **dict.fromkeys(beyond)) if beyond else record
