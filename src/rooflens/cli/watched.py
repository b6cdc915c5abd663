"""What a sidecar watches and beside which roof, in the words of its first lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rooflens.adapters.scrape.address import address_of
from rooflens.analyzer.calibrated import efficiency_from
from rooflens.analyzer.unsteady import UNSTEADY
from rooflens.calibration_records import Calibration
from rooflens.cli.feeds_named import feed_lines
from rooflens.model_records import HardwareSpec
from rooflens.pipeline.engine_calibration import calibration_of_engine
from rooflens.pipeline.watch_settings import WatchSettings


def watched(settings: WatchSettings, found: bool, why: str | None = None) -> Iterator[str]:
    """What is watched, in words; ``found`` is whether nobody named the hardware, ``why`` a driver does not."""
    if settings.use_rings:
        for folder in settings.folders:
            yield f"rings     {folder}{'' if folder.is_dir() else ' (not there yet)'}"
    for url in settings.scrape_urls:
        yield f"page      {address_of(url).name}"
    yield from feed_lines(settings.feeds)
    if settings.discover is not None:
        yield "pages     of engines on the usual ports of this machine, while no ring is live"
    if settings.hardware is None:
        reason = "" if why is None else f" ({why})"
        yield f"hardware  not known{reason}, so there is no floor: give --hardware ID"
    else:
        bandwidth = settings.hardware.memory_bandwidth_bytes_per_s / 1e9
        origin = f"{settings.hardware.origin}{', the device of this machine; else give --hardware ID' if found else ''}"
        yield f"hardware  {settings.hardware.id} ({origin}): {bandwidth:,.1f} GB/s"
        yield f"reachable {_reachable(settings.hardware, settings.calibrations)}"


def _reachable(hardware: HardwareSpec, kept: Sequence[Calibration]) -> str:
    """Whose kernels say what is reachable, in words."""
    found = efficiency_from(calibration_of_engine(kept, (), here=True), hardware)
    if found is None:
        why = next((flag for flag in hardware.flags if flag.startswith(UNSTEADY)), None)
        return why.removeprefix("reachable is ") if why else "not known: 'rooflens calibrate' measures it"
    return found.source if found.origin != "published" else "as published; 'rooflens calibrate' measures this machine"
