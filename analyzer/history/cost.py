"""What a period cost: device time, money, energy, and each of them for a million generated tokens."""

from __future__ import annotations

from collections.abc import Sequence

from rooflens.analyzer.history.records import Cost, EngineHistory
from rooflens.analyzer.history.sums import ratio

HOUR_S, MILLION = 3600.0, 1e6


def cost_of(
    engines: Sequence[EngineHistory],
    generated_tokens: float | None,
    price_per_device_hour: float | None = None,
    energy_j: float | None = None,
    energy_ratio: float | None = None,
) -> Cost:
    """The cost of ``engines``; money is for the time in which devices were held, idle or not."""
    each_held = [engine.held_device_s for engine in engines if engine.held_device_s is not None]
    held = sum(each_held) if len(each_held) == len(engines) else None
    busy = _sum([engine.busy_device_s for engine in engines])
    wasted = _sum([engine.wasted_device_s for engine in engines])
    price = None if price_per_device_hour is None else price_per_device_hour / HOUR_S
    each = None if not generated_tokens or held is None else ratio(held * MILLION, generated_tokens)
    return Cost(
        busy_device_s=busy,
        held_device_s=held,
        wasted_device_s=wasted,
        device_s_per_million_tokens=each,
        price_per_device_hour=price_per_device_hour,
        money=_times(held, price),
        wasted_money=_times(wasted, price),
        money_per_million_tokens=_times(each, price),
        energy_j=energy_j,
        energy_j_per_million_tokens=_energy_each(energy_j, energy_ratio, generated_tokens),
        energy_ratio=energy_ratio,
    )


def _energy_each(energy_j: float | None, energy_ratio: float | None, tokens: float | None) -> float | None:
    """Energy for a million tokens; of some devices only it is not known, for all of them made the tokens."""
    if energy_j is None or not tokens or (energy_ratio is not None and energy_ratio < 1):
        return None
    return ratio(energy_j * MILLION, tokens)


def _sum(values: Sequence[float | None]) -> float | None:
    """The sum of what is known; None where nothing is."""
    found = [value for value in values if value is not None]
    return sum(found) if found else None


def _times(value: float | None, price: float | None) -> float | None:
    return None if value is None or price is None else value * price
