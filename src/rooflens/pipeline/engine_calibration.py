"""Which calibration is of the devices of an engine: a card of the same kind beside them is another card."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rooflens.calibration_records import Calibration


def calibration_of_engine(kept: Sequence[Calibration], uuids: Iterable[str], here: bool) -> Calibration | None:
    """That of a device in ``uuids``, of any where none are named; None for an engine that may run elsewhere.

    Of several the one that reads slowest, since the devices of an engine wait for each other. Those of a CPU have no
    uuid and are of every engine on it. None where there is none to use.
    """
    named = {uuid.casefold() for uuid in uuids}
    own = [one for one in kept if here and one.reads and (not named or _uuid(one) in named or not _uuid(one))]
    return min(own, key=lambda one: one.reads[-1][1].median, default=None)


def _uuid(calibration: Calibration) -> str:
    return (calibration.identity.device_uuid or "").casefold()
