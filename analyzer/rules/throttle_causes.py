"""Why clocks are held down, by the reasons that the devices gave, and what to do about each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rooflens.device_records import CounterSource, Throttle, WindowCounters

LEAST_FLAG_RATIO = 0.1  # of the covered time: a reason in force for less explains no mean clock
PARTS_OF_SLOWDOWN = (Throttle.HARDWARE_THERMAL, Throttle.POWER_BRAKE)  # NVML sets the whole with each of its parts
MOST_FLAG_RATIO = 0.5  # in force for most of the time: the cause is hardly in doubt
OWN_LIMIT_RATIO = 0.75  # of the power limit: a card that its own limit caps draws nearly all of it
SURE, LIKELY, UNSAID = 0.9, 0.8, 0.7  # confidence with a reason for most of the time, for some of it, with none


ROOM_RATIO = 1.01  # of the limit in force: less above it is rounding


@dataclass(frozen=True, slots=True)
class Cause:
    """Why in a few words, the next step, how sure it is that the clock is what takes the time, and whether it is
    ``mild``: nobody can change a setting to be rid of it."""

    text: str
    remedy: str
    confidence: float
    mild: bool = False


TEXTS: Mapping[Throttle, tuple[str, str]] = MappingProxyType({
    Throttle.POWER_CAP: (
        "a power cap",
        "raise the power limit (nvidia-smi -pl) if the card takes more: nvidia-smi -q -d POWER tells its highest",
    ),
    Throttle.POWER_BRAKE: (
        "a power brake from outside",
        "look at the power supply, its cables and the rack's power limit: something outside of the card brakes it",
    ),
    Throttle.THERMAL: ("heat", "cool it: airflow, inlet temperature, fans, neighbours in the chassis"),
    Throttle.HARDWARE_THERMAL: (
        "heat, by the hardware's own protection",
        "cool it now: airflow, fans, a heat sink that came off; the hardware protects itself",
    ),
    Throttle.HARDWARE_SLOWDOWN: (
        "a slow-down by the hardware",
        "check the power supply and its cables, then replace the part (nvidia-smi -q -d PERFORMANCE)",
    ),
    Throttle.SYNC_BOOST: (
        "a boost group that follows its slowest device",
        "find the slowest device of the boost group, or take this one out of it",
    ),
    Throttle.APPLICATION_CLOCKS: (
        "clocks that somebody set",
        "give the clocks back: nvidia-smi -rgc and -rac (-lgc and -ac set them)",
    ),
})  # fmt: skip
PLATFORM = (
    "the platform's power limit: the card draws {:.0%} of its own",
    "raising the card's limit changes nothing: look for a cap of the chassis, its management controller or its power "
    "supplies, and whether the chassis is made for this card",
)
AT_HIGHEST = ("a power cap at its highest limit", "nothing to raise: cool it better, or spread the load")
WITH_ROOM = "raise the power limit (nvidia-smi -pl): the card takes up to {:.2f} times the one it has"
NO_REASON = ("no reason given", "look for a locked clock (nvidia-smi -q -d CLOCK,PERFORMANCE) and free it: -rgc, -rmc")
MEMORY = ("the memory clock alone", "free the memory clock (nvidia-smi -rmc, -rac) and check the performance state")
AMD_REMEDY = "compare `amd-smi metric --clock --power` with `amd-smi static --limit`; reset with `amd-smi reset`"


def reasons_of(counters: WindowCounters) -> tuple[tuple[Throttle, float], ...]:
    """The reasons in force for a tenth of the time or more, the longest first.

    A slow-down by the hardware is left out where the driver also tells which: heat or a power brake.
    """
    shares = sorted(counters.throttled_ratio.items(), key=lambda pair: (-pair[1], list(Throttle).index(pair[0])))
    found = tuple((reason, share) for reason, share in shares if share >= LEAST_FLAG_RATIO)
    told = any(reason in PARTS_OF_SLOWDOWN for reason, _ in found)
    return tuple(pair for pair in found if not (told and pair[0] is Throttle.HARDWARE_SLOWDOWN))


def cause_of(counters: WindowCounters, memory_alone: bool = False) -> Cause:
    """The reason in force for most of the time; ``memory_alone`` where the SM clock is not the trouble."""
    reasons = reasons_of(counters)
    if not reasons:
        text, remedy = MEMORY if memory_alone else NO_REASON
        return Cause(text, _for(counters, remedy), UNSAID)
    reason, share = reasons[0]
    sure = SURE if share >= MOST_FLAG_RATIO else LIKELY
    if reason is Throttle.POWER_CAP:
        return _power_cap(counters, sure)
    text, remedy = TEXTS[reason]
    return Cause(text, _for(counters, remedy) if reason is Throttle.APPLICATION_CLOCKS else remedy, sure)


def _power_cap(counters: WindowCounters, sure: float) -> Cause:
    """Whose limit it is, by the draw while it was capped (a mean over idle time is low of any), and whether the card
    takes a higher one."""
    (text, remedy), power, room = (
        TEXTS[Throttle.POWER_CAP],
        counters.capped_power_ratio,
        counters.power_limit_room_ratio,
    )
    if power is not None and power < OWN_LIMIT_RATIO:
        return Cause(PLATFORM[0].format(power), PLATFORM[1], sure)
    if room is not None and room < ROOM_RATIO:
        return Cause(*AT_HIGHEST, sure, mild=True)
    return Cause(text, _for(counters, remedy if room is None else WITH_ROOM.format(room)), sure)


def flags_text(counters: WindowCounters) -> str:
    """What the flags say, for the summary of a window that they do not matter in; nothing without any."""
    reasons = reasons_of(counters)
    if not reasons:
        return ""
    names = ", ".join(f"{str(reason).replace('_', ' ')} {share:.0%}" for reason, share in reasons)
    return f", though the devices say: {names} of the time"


def _for(counters: WindowCounters, remedy: str) -> str:
    """In the words of the device's own tool."""
    return AMD_REMEDY if counters.source is CounterSource.AMDSMI else remedy
