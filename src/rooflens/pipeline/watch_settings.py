"""What to watch and how, as the wiring's caller says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rooflens.calibration_records import Calibration
from rooflens.collector.windows import WindowSettings
from rooflens.model_records import HardwareSpec
from rooflens.pipeline.follow import Wanted
from rooflens.pipeline.pages import Discover
from rooflens.pipeline.probes import Sampled
from rooflens.pipeline.tracing import TraceTo
from rooflens.protocols import Feed


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """What to watch and how.

    ``folders`` are folders of rings, read unless ``use_rings`` is False; ``scrape_urls`` are metrics pages, read
    every ``scrape_s`` seconds with ``scrape_token``, which is shown nowhere. ``hardware`` is what every engine runs on,
    ``calibrations`` what such devices of this machine were measured to reach, of which an engine takes those of its
    own; ``model_config`` is the config of a model whose engine
    does not state it. ``discover`` finds local pages where there is neither a page nor a live ring; it is called in a
    thread of its own. ``from_start`` also counts what rings held before; ``wanted`` says of a ring's path whether it is
    to be read (default: all). ``probes`` sample the counters of devices and processes. ``feeds`` are sources that come
    by themselves: logs, sockets, what is pushed; the watch starts and closes them. ``state`` is the folder where what
    is learned of engines is kept, None for none. ``trace`` is where everything that is seen is kept.
    """

    folders: Sequence[Path] = ()
    scrape_urls: Sequence[str] = ()
    hardware: HardwareSpec | None = None
    model_config: Mapping[str, Any] | None = None
    windows: WindowSettings = field(default_factory=WindowSettings)
    tick_s: float = 1.0
    scrape_s: float = 5.0
    scrape_token: str | None = field(default=None, repr=False)
    use_rings: bool = True
    from_start: bool = False
    wanted: Wanted | None = None
    discover: Discover | None = None
    calibrations: Sequence[Calibration] = ()
    probes: Sequence[Sampled] = ()
    feeds: Sequence[Feed] = ()
    state: Path | None = None
    trace: TraceTo | None = None
